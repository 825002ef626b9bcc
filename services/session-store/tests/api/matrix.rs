//! The access matrix: every route with every kind of caller. A route without a row fails the test.

use std::collections::BTreeSet;

use ensemble_chassis::Service;
use ensemble_session_store::SessionStore;
use ensemble_testkit::{Answer, Api, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture};

const CALLERS: [&str; 11] = [
    "owner",
    "admin",
    "edit",
    "view",
    "revoked",
    "stranger",
    "anonymous",
    "machine token",
    "voice key",
    "expired token",
    "foreign token",
];

/// A call, and the status for each of [`CALLERS`]. `{id}`, `{link}`, `{edit}` and the like stand for the scenario's
/// session, link and users.
struct Row {
    method: &'static str,
    route: &'static str,
    path: &'static str,
    body: fn(&Scenario) -> Value,
    statuses: [u16; 11],
}

/// One session with its users. Created again after each successful change.
struct Scenario {
    owner: Client,
    admin: Client,
    edit: Client,
    view: Client,
    revoked: Client,
    stranger: Client,
    other_admin: Client,
    session: String,
    link: String,
}

/// The statuses for owner, admin, edit and view. Other callers get the same everywhere.
const fn members(owner: u16, admin: u16, edit: u16, view: u16) -> [u16; 11] {
    // A machine does not see the sessions that people have made, also on it.
    [owner, admin, edit, view, 404, 404, 401, 404, 401, 401, 401]
}

const NO_BODY: fn(&Scenario) -> Value = |_| Value::Null;
const EVERYONE: [u16; 11] = [200; 11];
/// Calls on the caller's own account, which every user has.
const OWN_ACCOUNT: [u16; 11] = [200, 200, 200, 200, 200, 200, 401, 200, 401, 401, 401];

/// A share of the scenario's session with the stranger.
fn new_share(scenario: &Scenario, level: &str) -> Value {
    json!({ "userId": scenario.stranger.id, "accessLevel": level, "encryptedKey": "k" })
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    const ID: &str = "/v1/sessions/{id}";
    const MESSAGES: &str = "/v3/sessions/{id}/messages";
    const BATCH: &str = "/v3/sessions/{id}/messages/batch";
    const STREAM: &str = "/v3/sessions/{id}/messages/stream";
    const LIVE: &str = "/v3/sessions/live";
    const SHARES: &str = "/v1/sessions/{id}/shares";
    const SHARE: &str = "/v1/sessions/{id}/shares/{userId}";
    const LINK: &str = "/v1/sessions/{id}/public-share";
    let row = |method, route, path, body, statuses| Row { method, route, path, body, statuses };
    let for_admin: fn(&Scenario) -> Value = |scenario| {
        json!({ "userId": scenario.other_admin.id, "accessLevel": "view", "encryptedKey": "k" })
    };
    let admin: fn(&Scenario) -> Value = |_| json!({ "accessLevel": "admin" });
    let view: fn(&Scenario) -> Value = |_| json!({ "accessLevel": "view" });
    vec![
        // 400: the caller may create sessions, but the body is empty.
        row("POST", "/v1/sessions", "/v1/sessions", NO_BODY, [400, 400, 400, 400, 400, 400, 401, 400, 401, 401, 401]),
        row("GET", "/v1/sessions", "/v1/sessions", NO_BODY, OWN_ACCOUNT),
        row("GET", "/v2/sessions/active", "/v2/sessions/active", NO_BODY, OWN_ACCOUNT),
        row("GET", "/v1/events", "/v1/events", NO_BODY, OWN_ACCOUNT),
        row("POST", "/v1/events", "/v1/events", NO_BODY, OWN_ACCOUNT),
        row("GET", ID, ID, NO_BODY, members(200, 200, 200, 200)),
        row("PATCH", ID, ID, |_| json!({ "heartbeat": {} }), members(200, 200, 200, 403)),
        row("PATCH", ID, ID, |_| json!({ "metadata": "m" }), members(200, 200, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "agentState": "a" }), members(200, 200, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "status": "ended" }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "archived": true }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "encryptionKey": "k", "expectedKeyEpoch": 1 }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "metadata": "m", "archived": true }), members(200, 403, 403, 403)),
        row("DELETE", ID, ID, NO_BODY, members(200, 403, 403, 403)),
        row("POST", MESSAGES, MESSAGES, |_| json!({ "content": "c", "localId": "l" }), members(201, 201, 201, 403)),
        row("POST", BATCH, BATCH, |_| json!({ "messages": [{ "content": "c", "localId": "m" }] }), members(201, 201, 201, 403)),
        row("GET", MESSAGES, MESSAGES, NO_BODY, members(200, 200, 200, 200)),
        row("GET", STREAM, STREAM, NO_BODY, members(200, 200, 200, 200)),
        row("POST", STREAM, STREAM, NO_BODY, members(200, 200, 200, 200)),
        // The session was made by people, so it has no machine that could send frames.
        row("POST", LIVE, LIVE, |scenario| json!({ "frames": [{ "sessionId": scenario.session, "content": "c" }] }), members(403, 403, 403, 403)),
        // For the same reason there is nothing to look at.
        row("POST", "/v1/looks", "/v1/looks", |scenario| json!({ "sessionId": scenario.session, "question": "q" }), [400, 400, 400, 403, 404, 404, 401, 403, 401, 401, 401]),
        row("POST", "/v1/looks/{id}/answer", "/v1/looks/{id}/answer", |_| json!({ "answer": "a" }), members(404, 404, 404, 404)),
        row("GET", SHARES, SHARES, NO_BODY, members(200, 403, 403, 403)),
        row("POST", SHARES, SHARES, |scenario| new_share(scenario, "view"), members(201, 201, 403, 403)),
        row("POST", SHARES, SHARES, |scenario| new_share(scenario, "edit"), members(201, 201, 403, 403)),
        row("POST", SHARES, SHARES, |scenario| new_share(scenario, "admin"), members(201, 403, 403, 403)),
        row("POST", SHARES, SHARES, for_admin, members(200, 403, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{edit}", view, members(200, 200, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{edit}", admin, members(200, 403, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{other_admin}", view, members(200, 403, 403, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{edit}", NO_BODY, members(200, 200, 200, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{view}", NO_BODY, members(200, 200, 403, 200)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{admin}", NO_BODY, members(200, 200, 403, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{other_admin}", NO_BODY, members(200, 403, 403, 403)),
        row("GET", LINK, LINK, NO_BODY, members(200, 200, 403, 403)),
        row("POST", LINK, LINK, |_| json!({}), members(200, 403, 403, 403)),
        row("DELETE", LINK, LINK, NO_BODY, members(200, 403, 403, 403)),
        row("GET", "/v1/public-sessions/{token}", "/v1/public-sessions/{link}", NO_BODY, EVERYONE),
        // A public stream requires a view token, and says so.
        row("GET", "/v1/public-sessions/{token}/stream", "/v1/public-sessions/{link}/stream", NO_BODY, [400; 11]),
        row("POST", "/v1/public-sessions/{token}/stream", "/v1/public-sessions/{link}/stream", NO_BODY, [400; 11]),
    ]
}

impl Scenario {
    async fn new(fixture: &Fixture) -> Self {
        let owner = fixture.client();
        let session = owner.session().await;
        let revoked = fixture.guest(&owner, &session, "admin").await;
        owner.api.delete(&format!("/v1/sessions/{session}/shares/{}", revoked.id)).await.expect(200);
        let link = owner.api.post(&format!("/v1/sessions/{session}/public-share"), &json!({})).await.expect(201);
        Self {
            admin: fixture.guest(&owner, &session, "admin").await,
            edit: fixture.guest(&owner, &session, "edit").await,
            view: fixture.guest(&owner, &session, "view").await,
            other_admin: fixture.guest(&owner, &session, "admin").await,
            revoked,
            stranger: fixture.client(),
            owner,
            session,
            link: link["token"].as_str().unwrap().to_owned(),
        }
    }

    fn api(&self, caller: &str, fixture: &Fixture) -> Api {
        let (anonymous, issuer) = (fixture.anonymous(), fixture.peers.issuer());
        match caller {
            "owner" => self.owner.api.clone(),
            "admin" => self.admin.api.clone(),
            "edit" => self.edit.api.clone(),
            "view" => self.view.api.clone(),
            "revoked" => self.revoked.api.clone(),
            "stranger" => self.stranger.api.clone(),
            // These belong to the owner, but this service does not accept them.
            "machine token" => anonymous.with_token(&issuer.machine(self.owner.id, &self.owner.machine)),
            "voice key" => anonymous.with_token("the-voice-public-key-of-an-application"),
            "expired token" => anonymous.with_token(&issuer.expiring(self.owner.id, -120)),
            "foreign token" => anonymous.with_token(&issuer.foreign(self.owner.id)),
            _ => anonymous,
        }
    }

    fn fill(&self, path: &str) -> String {
        path.replace("{id}", &self.session)
            .replace("{link}", &self.link)
            .replace("{admin}", &self.admin.id.to_string())
            .replace("{other_admin}", &self.other_admin.id.to_string())
            .replace("{edit}", &self.edit.id.to_string())
            .replace("{view}", &self.view.id.to_string())
    }
}

on_both_databases! {
    async fn every_route_answers_as_the_matrix_says(on: Backend) {
        let fixture = Fixture::start(on).await;
        let rows = rows();
        let routes: BTreeSet<String> =
            SessionStore::routes().rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
        let covered: BTreeSet<String> = rows.iter().map(|row| format!("{} {}", row.method, row.route)).collect();
        assert_eq!(routes, covered, "each route needs a row here, and each row a route");
        let mut wrong = Vec::new();
        for row in &rows {
            let is_read = row.method == "GET";
            let mut scenario = Scenario::new(&fixture).await;
            for (caller, expected) in CALLERS.iter().zip(row.statuses) {
                let answer = call(&fixture, &scenario, row, caller).await;
                if answer.status != expected {
                    wrong.push(format!(
                        "{} {} by {caller}: {} instead of {expected}: {}",
                        row.method, row.path, answer.status, answer.text
                    ));
                }
                if answer.status < 300 && !is_read {
                    scenario = Scenario::new(&fixture).await;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

async fn call(fixture: &Fixture, scenario: &Scenario, row: &Row, caller: &str) -> Answer {
    let api = scenario.api(caller, fixture);
    let request = api.request(row.method, &scenario.fill(row.path));
    let body = (row.body)(scenario);
    let request = match (row.method, &body) {
        ("POST", Value::Null) => request.json(&json!({})),
        (_, Value::Null) => request,
        _ => request.json(&body),
    };
    if row.route.ends_with("stream") || row.route == "/v1/events" {
        // A stream does not end, so its body is not read.
        let response = request.send().await.unwrap();
        return Answer { status: response.status().as_u16(), headers: response.headers().clone(), text: String::new() };
    }
    Api::send(request).await
}
