//! The bound of every route's body, as the OpenAPI document shows it.

use ensemble_all_in_one::api;
use ensemble_e2e::{Stack, VOICE_KEY, text};
use ensemble_testkit::Backend;
use serde_json::json;

/// A valid id that does not exist.
const UNKNOWN_ID: &str = "01932b5e-7b1a-7c3e-8f00-000000000001";
/// The largest body that the edge passes on.
const LARGEST: usize = 16 << 20;
/// Routes that check a signature of their own before they read a body.
const SIGNED: [&str; 2] = ["/hooks/livekit", "/agent/v1/sessions/{id}/events"];

/// The path with ids in the place of its parameters.
fn filled(template: &str) -> String {
    let parts = template.split('/').map(|part| match part {
        "{token}" => "t".repeat(43),
        part if part.starts_with('{') => UNKNOWN_ID.to_owned(),
        part => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The status for a JSON body of this many bytes.
async fn status(stack: &Stack, (key, token): (&str, &str), method: &str, path: &str, length: usize) -> u16 {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = stack.http.request(method, format!("{}{path}", stack.url()));
    if !key.is_empty() {
        request = request.header("x-voice-key", key);
    }
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    let body = format!("{{{}}}", " ".repeat(length - 2));
    request.header("content-type", "application/json").body(body).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_a_body_above_its_bound() {
    let stack = Stack::start(Backend::Sqlite, &[("EDGE_PROXY_LIMIT_SIGN_IN", "0")]).await.unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let made = stack.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    let machine = text(&made, "token").unwrap();
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(body) = operation.get("requestBody") else { continue };
            let bound = usize::try_from(body["x-max-bytes"].as_u64().expect("a bound")).unwrap();
            let (method, path) = (method.to_uppercase(), path.as_str());
            seen += 1;
            // The first credential that the route takes; a refusal of the others must come before the body is read.
            let mut answers = Vec::new();
            let owner = owner.token.as_str();
            for credentials in [("", ""), ("", owner), ("", &machine), (VOICE_KEY, ""), (VOICE_KEY, owner)] {
                answers.push(status(&stack, credentials, &method, &filled(path), bound + 1).await);
            }
            let is_right = if SIGNED.contains(&path) {
                answers.iter().all(|status| *status == 401)
            } else {
                answers.contains(&413) && answers.iter().all(|status| [401, 403, 413].contains(status))
            };
            if !is_right {
                wrong.push(format!("{method} {path}, {bound}: {answers:?}"));
            }
            let anonymous = operation["security"] != json!([]);
            // The edge refuses what is longer than any route takes.
            let is_edges = bound == LARGEST && answers[0] == 413;
            if anonymous && answers[0] != 401 && !is_edges {
                wrong.push(format!("{method} {path}: {} before the caller is known", answers[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 20, "only {seen} routes with a body");
    assert!(stack.services.stop().await);
}
