//! The examples of the OpenAPI document: each body is one that its schema and a server take, and each answer is one that a test of
//! a service would take.

use std::collections::BTreeSet;

use ensemble_all_in_one::api;
use ensemble_e2e::{Stack, VOICE_KEY, text};
use ensemble_testkit::Backend;
use ensemble_testkit::document::Asked;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::openapi::operations;

/// A valid id that does not exist.
const UNKNOWN: &str = "01932b5e-7b1a-7c3e-8f00-0000000000ff";

/// What each example gets from a server that has a machine, a session and a run, in the order of the document.
const ANSWERS: &[(&str, u16, &str)] = &[
    ("POST /agent/v1/sessions/{id}/events", 401, "UNAUTHENTICATED"),
    ("PATCH /v1/account", 200, ""),
    ("POST /v1/auth", 401, "UNAUTHENTICATED"),
    ("POST /v1/auth/links/{id}/request", 404, "NOT_FOUND"),
    ("POST /v1/auth/tokens", 201, ""),
    // The signature of the list is made up.
    ("POST /v1/devices", 400, "INVALID_ARGUMENT"),
    ("PATCH /v1/devices/{id}", 404, "NOT_FOUND"),
    // The time of the example is over.
    ("POST /v1/invites", 400, "INVALID_ARGUMENT"),
    ("POST /v1/invites/{id}/answer", 404, "NOT_FOUND"),
    ("POST /v1/invites/{id}/claim", 404, "NOT_FOUND"),
    ("POST /v1/looks", 404, "NOT_FOUND"),
    ("POST /v1/looks/{id}/answer", 404, "NOT_FOUND"),
    ("POST /v1/machines", 200, ""),
    ("PATCH /v1/machines/{id}", 200, ""),
    ("POST /v1/orchestrator/leases", 200, ""),
    ("POST /v1/orchestrator/leases/{id}/diff", 404, "NOT_FOUND"),
    ("POST /v1/orchestrator/leases/{id}/finish", 404, "NOT_FOUND"),
    ("POST /v1/orchestrator/leases/{id}/heartbeat", 404, "NOT_FOUND"),
    ("POST /v1/orchestrator/leases/{id}/output", 404, "NOT_FOUND"),
    ("POST /v1/orchestrator/orders/{id}/result", 404, "NOT_FOUND"),
    ("POST /v1/orchestrator/runs", 201, ""),
    ("POST /v1/orchestrator/runs/{id}/cancel", 200, ""),
    ("POST /v1/orchestrator/runs/{id}/pend", 200, ""),
    ("POST /v1/orchestrator/runs/{id}/tasks/{taskId}/apply", 409, "CONFLICT"),
    ("POST /v1/orchestrator/runs/{id}/tasks/{taskId}/discard", 409, "CONFLICT"),
    ("POST /v1/orchestrator/runs/{id}/tasks/{taskId}/messages", 409, "CONFLICT"),
    ("POST /v1/sessions", 201, ""),
    ("PATCH /v1/sessions/{id}", 200, ""),
    ("POST /v1/sessions/{id}/public-share", 201, ""),
    ("POST /v1/sessions/{id}/shares", 404, "USER_NOT_FOUND"),
    ("PATCH /v1/sessions/{id}/shares/{userId}", 404, "NOT_FOUND"),
    ("POST /v1/voice/session/context", 404, "NOT_FOUND"),
    ("POST /v1/voice/session/say", 404, "NOT_FOUND"),
    ("POST /v1/voice/session/start", 403, "FORBIDDEN"),
    ("POST /v1/voice/session/stop", 200, ""),
    ("POST /v1/voice/session/text", 404, "NOT_FOUND"),
    ("POST /v3/sessions/live", 404, "NOT_FOUND"),
    ("POST /v3/sessions/{id}/messages", 201, ""),
    ("POST /v3/sessions/{id}/messages/batch", 201, ""),
];

/// Compares values with the schemas of the document.
struct Compared {
    compiler: boon::Compiler,
    schemas: boon::Schemas,
}

impl Compared {
    const URL: &str = "https://ensemble.invalid/openapi.json";

    fn new(document: &Value) -> Self {
        let mut compiler = boon::Compiler::new();
        compiler.add_resource(Self::URL, document.clone()).unwrap();
        Self { compiler, schemas: boon::Schemas::new() }
    }

    /// `schema` is a reference.
    fn difference(&mut self, schema: &str, value: &Value) -> Option<String> {
        let index = self.compiler.compile(&format!("{}{schema}", Self::URL), &mut self.schemas).unwrap();
        self.schemas.validate(value, index).err().map(|difference| format!("{difference:#}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_body_has_an_example_that_the_schema_and_the_server_take() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "laptop").await.unwrap();
    let made = stack.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "laptop" })).await.unwrap();
    let machine = text(&made, "token").unwrap();
    let session = stack.session(&owner, "laptop").await.unwrap();
    let plan = json!({ "tasks": [{ "prompt": "x", "provider": "claude" }] });
    let run = stack.must(&owner.token, "POST", "/v1/orchestrator/runs", plan).await.unwrap();
    let ids = [
        ("/v1/sessions/{id}", session.as_str()),
        ("/v3/sessions/{id}", session.as_str()),
        ("/v1/machines/{id}", "laptop"),
        ("/v1/orchestrator/runs/{id}", run["id"].as_str().unwrap()),
    ];
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let mut compared = Compared::new(&document);
    let (mut wrong, mut answers) = (Vec::new(), Vec::new());
    for (name, operation) in operations(&document) {
        let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema/$ref") else { continue };
        let schema = schema.as_str().unwrap();
        // A stream does not end, so its answer is no whole one. The access matrix opens each.
        if schema.ends_with("/StreamParameters") {
            continue;
        }
        let Some(example) = document.pointer(&schema[1..]).unwrap()["examples"].get(0) else {
            wrong.push(format!("{name} has no example"));
            continue;
        };
        wrong.extend(compared.difference(schema, example).map(|difference| format!("{name}: {difference}")));
        let (method, template) = name.split_once(' ').unwrap();
        let id = ids.iter().find(|(under, _)| template.starts_with(under)).map_or(UNKNOWN, |(_, id)| id);
        let path = template.replace("{id}", id).replace("{taskId}", run["tasks"][0]["id"].as_str().unwrap());
        let path = path.replace("{userId}", UNKNOWN);
        let is_machines = ["/leases", "/orders/", "/live"].iter().any(|part| path.contains(part));
        let bearer = if is_machines { &machine } else { &owner.token };
        let call = stack.http.request(method.parse().unwrap(), format!("{}{path}", stack.url())).bearer_auth(bearer);
        let call = if path.contains("/voice/") { call.header("x-voice-key", VOICE_KEY) } else { call };
        let answer = call.json(example).send().await.unwrap();
        let (status, answer) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default());
        let code = answer["code"].as_str().unwrap_or_default().to_owned();
        answers.push((name, status, code));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let found: Vec<_> = answers.iter().map(|(name, status, code)| (name.as_str(), *status, code.as_str())).collect();
    assert_eq!(found, ANSWERS, "{found:#?}");
    assert!(stack.services.stop().await);
}

/// Behind references.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    value["$ref"].as_str().map_or(value, |to| resolved(document, document.pointer(&to[1..]).unwrap()))
}

#[test]
fn each_answer_of_json_has_an_example_that_it_could_be() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let (mut seen, mut without) = (0, BTreeSet::new());
    for (name, operation) in operations(&document) {
        let (method, path) = name.split_once(' ').unwrap();
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("https://ensemble.invalid{path}").parse().unwrap();
        let asked = Asked::new(&reqwest::Request::new(method, url));
        for (status, response) in operation["responses"].as_object().unwrap() {
            let contents = resolved(&document, response)["content"].as_object().into_iter().flatten();
            for (media_type, content) in contents.filter(|(media_type, _)| media_type.ends_with("json")) {
                // Documents and contexts have no schema here.
                let Some(schema) = content["schema"]["$ref"].as_str() else { continue };
                let Some(example) = resolved(&document, &content["schema"])["examples"].get(0) else {
                    without.insert(schema);
                    continue;
                };
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap())]);
                asked.check(status.parse().unwrap_or(500), &headers, &example.to_string());
                seen += 1;
            }
        }
    }
    assert!(without.is_empty(), "{without:?}");
    assert!(seen > 200, "only {seen} answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_refuses_a_task_without_prompt_and_seal_as_the_server_does() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let mut compared = Compared::new(&document);
    for (task, status) in [
        (json!({ "provider": "claude", "prompt": "x" }), 201),
        (json!({ "provider": "claude", "prompt": "x", "sealed": null }), 201),
        (json!({ "provider": "claude" }), 400),
        (json!({ "provider": "claude", "prompt": null }), 400),
        (json!({ "provider": "claude", "prompt": null, "sealed": null }), 400),
    ] {
        let is_taken = compared.difference("#/components/schemas/CreateTask", &task).is_none();
        assert_eq!(is_taken, status == 201, "{task}");
        let plan = json!({ "tasks": [task] });
        let (found, answer) = stack.call(&owner.token, "POST", "/v1/orchestrator/runs", Some(&plan)).await.unwrap();
        assert_eq!(found, status, "{plan}: {answer}");
        if status == 400 {
            assert_eq!(answer["errors"][0]["pointer"], "/tasks/0/prompt", "{answer}");
        }
    }
    assert!(stack.services.stop().await);
}
