//! The access matrix: every route and every kind of caller. A route without a row here fails the test.

use std::collections::BTreeSet;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ensemble_all_in_one::api;
use ensemble_chassis::Routes;
use ensemble_chassis::auth::{AUDIENCE_USER, Claims, ISSUER, SCOPE_USER, sign};
use ensemble_e2e::{Stack, User, VOICE_KEY, text};
use ensemble_testkit::Backend;
use ensemble_types::ids::TokenId;
use serde_json::{Value, json};

/// The columns. An expired token is tested separately, with the owner's token two hours later.
const CALLERS: [&str; 10] =
    ["owner", "admin", "edit", "view", "revoked", "stranger", "anonymous", "machine", "voice key", "foreign-signed"];

/// One route and the status for each caller.
struct Row {
    method: &'static str,
    path: &'static str,
    body: fn(&Fixture) -> Value,
    /// In the order of [`CALLERS`]; 0 where any status but 401, 403 and 5xx is right.
    answers: [u16; 10],
    /// Whether the call changes resources, so that each caller needs new ones.
    changes: bool,
}

/// The resources of the owner, and the users with different access to them.
struct Fixture {
    owner: User,
    admin: User,
    edit: User,
    view: User,
    revoked: User,
    stranger: User,
    machine_token: String,
    foreign: String,
    session: String,
    link: String,
    run: String,
    task: String,
    token_id: String,
}

impl Fixture {
    fn token(&self, caller: &str) -> &str {
        match caller {
            "owner" => &self.owner.token,
            "admin" => &self.admin.token,
            "edit" => &self.edit.token,
            "view" => &self.view.token,
            "revoked" => &self.revoked.token,
            "stranger" => &self.stranger.token,
            "machine" => &self.machine_token,
            "voice key" => VOICE_KEY,
            "foreign-signed" => &self.foreign,
            _ => "",
        }
    }

    fn path(&self, template: &str) -> String {
        let id = match template {
            t if t.starts_with("/v1/machines/") => "m",
            t if t.starts_with("/v1/users/") => &self.admin.id,
            t if t.starts_with("/v1/auth/tokens/") => &self.token_id,
            t if t.starts_with("/v1/orchestrator/runs/") => &self.run,
            t if t.starts_with("/v1/orchestrator/leases/")
                || t.starts_with("/v1/orchestrator/orders/")
                || t.contains("voice/session/")
                || t.starts_with("/agent/") =>
            {
                UNKNOWN_ID
            }
            _ => &self.session,
        };
        let mut path = template.to_owned();
        for (name, value) in [
            ("{token}", self.link.as_str()),
            ("{userId}", &self.view.id),
            ("{user_id}", &self.view.id),
            ("{taskId}", &self.task),
            ("{task_id}", &self.task),
            ("{runId}", &self.run),
            ("{run_id}", &self.run),
            ("{sessionId}", &self.session),
            ("{session_id}", &self.session),
            ("{gatewaySessionId}", UNKNOWN_ID),
            ("{gateway_session_id}", UNKNOWN_ID),
            ("{seq}", "1"),
            ("{file}", "no-such-file"),
            ("{id}", id),
        ] {
            path = path.replace(name, value);
        }
        path
    }
}

/// A valid id that does not exist.
const UNKNOWN_ID: &str = "01932b5e-7b1a-7c3e-8f00-000000000001";

const fn row(method: &'static str, path: &'static str, answers: [u16; 10]) -> Row {
    Row { method, path, body: |_| Value::Null, answers, changes: false }
}

impl Row {
    const fn with(mut self, body: fn(&Fixture) -> Value) -> Self {
        self.body = body;
        self
    }

    const fn changing(mut self) -> Self {
        self.changes = true;
        self
    }
}

/// A route of a session that people have made: owner, admin, edit, view. A machine does not see it; session-store's own tests have the
/// rows of a session that a machine hosts.
const fn of_session(method: &'static str, path: &'static str, may: [u16; 4]) -> Row {
    row(method, path, [may[0], may[1], may[2], may[3], 404, 404, 401, 404, 401, 401])
}

/// A route that every user may call, and machines may not.
const fn of_user(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, status, status, status, status, status, 401, 403, 401, 401])
}

/// A route to a resource that only its owner can see.
const fn of_owner(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, 404, 404, 404, 404, 404, 401, 403, 401, 401])
}

/// A route for machine tokens.
const fn of_machine(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [403, 403, 403, 403, 403, 403, 401, status, 401, 401])
}

/// A route without authentication, which also ignores invalid credentials.
const fn of_anyone(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status; 10])
}

/// A route for the voice key.
const fn of_voice(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [401, 401, 401, 401, 401, 401, 401, 401, status, 401])
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // identity
    of_anyone("POST", "/v1/auth/challenge", 200),
    of_anyone("POST", "/v1/auth", 401).with(|_| json!({ "publicKey": "A".repeat(43), "challenge": "x", "signature": "A".repeat(86), "origin": "http://x" })),
    of_user("GET", "/v1/account", 200),
    of_user("PATCH", "/v1/account", 200).with(|_| json!({ "displayName": "Someone" })),
    of_user("GET", "/v1/users/{id}", 200),
    of_user("POST", "/v1/auth/tokens", 201).with(|_| json!({ "machineId": "m" })),
    of_user("GET", "/v1/auth/tokens", 200),
    of_owner("DELETE", "/v1/auth/tokens/{id}", 200).changing(),
    of_anyone("GET", "/.well-known/jwks.json", 200),
    // No account here has a device list; identity/tests/api/device_access.rs has the rows of each role.
    of_user("GET", "/v1/devices", 200),
    of_user("POST", "/v1/devices", 400).with(|_| json!({})),
    of_user("GET", "/v1/devices/content-ring", 404),
    of_user("GET", "/v1/devices/push", 200),
    of_user("PATCH", "/v1/devices/{id}", 404).with(|_| json!({ "notify": [] })),
    row("GET", "/v1/users/{id}/devices", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_user("POST", "/v1/auth/links", 201),
    of_user("POST", "/v1/auth/links/{id}/refusal", 404),
    of_anyone("GET", "/v1/auth/links/{id}", 404),
    of_anyone("POST", "/v1/auth/links/{id}/request", 400).with(|_| json!({})),
    // machine-registry
    of_user("POST", "/v1/machines", 0).with(|_| json!({ "id": "another", "metadata": "x", "encryptionKey": "x" })),
    of_user("GET", "/v1/machines", 200),
    row("GET", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]),
    row("PATCH", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]).with(|_| json!({ "activity": {} })),
    of_owner("DELETE", "/v1/machines/{id}", 200).changing(),
    // session-store
    row("POST", "/v1/sessions", [201, 404, 404, 404, 404, 404, 401, 201, 401, 401]).with(|_| json!({ "machineId": "m", "metadata": "x", "encryptionKey": "x" })),
    row("GET", "/v1/sessions", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    row("GET", "/v2/sessions/active", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_session("GET", "/v1/sessions/{id}", [200, 200, 200, 200]),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "metadata": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "agentState": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 200, 403]).with(|_| json!({ "heartbeat": { "thinking": true } })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "archived": true })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "status": "ended" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "encryptionKey": "new", "expectedKeyEpoch": 1 })).changing(),
    of_session("DELETE", "/v1/sessions/{id}", [200, 403, 403, 403]).changing(),
    of_session("POST", "/v3/sessions/{id}/messages", [201, 201, 201, 403]).with(|_| json!({ "content": "x", "localId": "1" })),
    of_session("POST", "/v3/sessions/{id}/messages/batch", [201, 201, 201, 403]).with(|_| json!({ "messages": [{ "content": "x", "localId": "2" }] })),
    of_session("GET", "/v3/sessions/{id}/messages", [200, 200, 200, 200]),
    of_session("GET", "/v3/sessions/{id}/messages/stream", [200, 200, 200, 200]),
    of_session("POST", "/v3/sessions/{id}/messages/stream", [200, 200, 200, 200]),
    row("GET", "/v1/events", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    row("POST", "/v1/events", [200, 200, 200, 200, 200, 200, 401, 200, 401, 401]),
    of_session("POST", "/v3/sessions/live", [403, 403, 403, 403]).with(|w| json!({ "frames": [{ "sessionId": w.session, "content": "x" }] })),
    of_session("GET", "/v1/sessions/{id}/shares", [200, 403, 403, 403]),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 0, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "view", "encryptedKey": "x" })).changing(),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 403, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "admin", "encryptedKey": "x" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 403]).with(|_| json!({ "accessLevel": "edit" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 403, 403, 403]).with(|_| json!({ "accessLevel": "admin" })).changing(),
    // {userId} is the viewer, who may leave.
    of_session("DELETE", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 200]).changing(),
    of_session("GET", "/v1/sessions/{id}/public-share", [200, 200, 403, 403]),
    of_session("POST", "/v1/sessions/{id}/public-share", [0, 403, 403, 403]).with(|_| json!({})).changing(),
    of_session("DELETE", "/v1/sessions/{id}/public-share", [200, 403, 403, 403]).changing(),
    of_anyone("GET", "/v1/public-sessions/{token}", 200),
    of_anyone("GET", "/v1/public-sessions/{token}/stream", 0),
    of_anyone("POST", "/v1/public-sessions/{token}/stream", 0),
    // orchestrator
    of_user("POST", "/v1/orchestrator/runs", 201).with(|_| json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] })),
    of_user("GET", "/v1/orchestrator/runs", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/pend", 200).with(|_| json!({ "timeoutMs": 0 })),
    of_owner("GET", "/v1/orchestrator/runs/{id}/pend", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/events", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/events", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/tasks/{taskId}/output", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/output", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/tasks/{taskId}/diff", 200),
    // The task is not over.
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/apply", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/discard", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/cancel", 200).changing(),
    of_owner("POST", "/v1/orchestrator/runs/{id}/retry", 409).changing(),
    // The run has not ended, nor has its task.
    of_owner("DELETE", "/v1/orchestrator/runs/{id}", 409),
    of_owner("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/messages", 409).with(|_| json!({ "text": "x", "messageId": "1" })),
    of_user("GET", "/v1/orchestrator/usage", 200),
    of_machine("POST", "/v1/orchestrator/leases", 200).with(|_| json!({ "machineId": "m", "providers": ["gemini"], "capacity": 1, "waitMs": 0 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/heartbeat", 404).with(|_| json!({ "fence": 1 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/output", 404).with(|_| json!({ "fence": 1, "offset": 0, "data": "x" })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/diff", 404).with(|_| json!({ "fence": 1, "data": "x" })),
    of_machine("POST", "/v1/orchestrator/orders/{id}/result", 404).with(|_| json!({ "outcome": "applied" })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/finish", 404).with(|_| json!({ "fence": 1, "status": "completed" })),
    // voice-gateway: there is no LiveKit in this stack
    of_user("GET", "/v1/voice/key", 200),
    of_voice("POST", "/v1/voice/session/start", 503).with(|w| json!({ "userId": w.owner.id, "sessionId": w.session })),
    of_voice("POST", "/v1/voice/session/stop", 200).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID })),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/status", 404),
    // The voice key alone is not enough for these.
    of_voice("POST", "/v1/voice/session/say", 401).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "text": "x" })),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/events", 401),
    of_voice("POST", "/v1/voice/session/{gatewaySessionId}/events", 401),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/transcript", 401),
    of_voice("GET", "/v1/voice/sessions", 401),
    of_voice("POST", "/v1/voice/session/text", 404).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "text": "x" })),
    of_voice("POST", "/v1/voice/session/context", 404).with(|_| json!({ "gatewaySessionId": UNKNOWN_ID, "payload": {} })),
    of_anyone("POST", "/hooks/livekit", 401),
    of_anyone("GET", "/agent/v1/sessions/{id}/context", 401),
    of_anyone("POST", "/agent/v1/sessions/{id}/events", 401).with(|_| json!({ "kind": "ready" })),
    of_anyone("GET", "/agent/v1/sessions/{id}/texts/{seq}", 401),
    of_anyone("GET", "/v1/voice/tools/runs.list", 401),
    of_anyone("GET", "/v1/voice/tools/runs.show", 401),
    of_anyone("GET", "/v1/voice/tools/sessions.list", 401),
    // edge-proxy
    of_anyone("GET", "/", 0),
    of_anyone("GET", "/openapi.json", 200),
    of_anyone("GET", "/openapi-3.0.json", 200),
    of_anyone("GET", "/docs", 0),
    of_anyone("GET", "/docs/", 200),
    of_anyone("GET", "/docs/{file}", 404),
    of_anyone("GET", "/v1/version", 200),
    of_anyone("GET", "/share/{token}", 200),
    of_anyone("GET", "/healthz", 200),
    of_anyone("GET", "/readyz", 200),
];

async fn fixture(stack: &Stack) -> Fixture {
    let mut users = Vec::new();
    for _ in 0..6 {
        users.push(stack.user().await.unwrap());
    }
    let [owner, admin, edit, view, revoked, stranger]: [User; 6] = users.try_into().unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let foreign = foreign_signed(stack, &owner).await;
    let mut fixture = Fixture {
        owner,
        admin,
        edit,
        view,
        revoked,
        stranger,
        foreign,
        machine_token: String::new(),
        session: String::new(),
        link: String::new(),
        run: String::new(),
        task: String::new(),
        token_id: String::new(),
    };
    refresh(stack, &mut fixture).await;
    fixture
}

/// Creates new resources of the owner: a session shared at each level, a link, a run, a token.
async fn refresh(stack: &Stack, fixture: &mut Fixture) {
    let owner = fixture.owner.token.clone();
    stack.machine(&fixture.owner, "m").await.unwrap();
    let made = stack.must(&owner, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    fixture.machine_token = text(&made, "token").unwrap();
    fixture.session = stack.session(&fixture.owner, "m").await.unwrap();
    let shares = format!("/v1/sessions/{}/shares", fixture.session);
    for (user, level) in
        [(&fixture.admin, "admin"), (&fixture.edit, "edit"), (&fixture.view, "view"), (&fixture.revoked, "edit")]
    {
        let share = json!({ "userId": user.id, "accessLevel": level, "encryptedKey": "sealed" });
        stack.must(&owner, "POST", &shares, share).await.unwrap();
    }
    stack.must(&owner, "DELETE", &format!("{shares}/{}", fixture.revoked.id), Value::Null).await.unwrap();
    let link = format!("/v1/sessions/{}/public-share", fixture.session);
    fixture.link = text(&stack.must(&owner, "POST", &link, json!({})).await.unwrap(), "token").unwrap();
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] });
    let run = stack.must(&owner, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    fixture.run = text(&run, "id").unwrap();
    fixture.task = text(&run["tasks"][0], "id").unwrap();
    let spare = stack.must(&owner, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    fixture.token_id = text(&spare, "id").unwrap();
}

/// A valid token except for its signature: signed with another key under the id of the real one.
async fn foreign_signed(stack: &Stack, owner: &User) -> String {
    let keys = stack.must("", "GET", "/.well-known/jwks.json", Value::Null).await.unwrap();
    let kid = text(&keys["keys"][0], "kid").unwrap();
    let now = ensemble_chassis::Clock::system().now().unix_seconds();
    let claims = Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_USER.to_owned(),
        sub: owner.id.parse().unwrap(),
        jti: TokenId::generate(),
        iat: now,
        exp: now + 3600,
        scope: SCOPE_USER.to_owned(),
        machine_id: None,
        device: None,
    };
    sign(&claims, &kid, &SigningKey::from_bytes(&[9; 32])).unwrap()
}

async fn every_cell(backend: Backend) {
    let stack = Stack::start(backend, &[]).await.unwrap();
    let mut fixture = fixture(&stack).await;
    let mut wrong = Vec::new();
    for row in ROWS {
        for (caller, expected) in CALLERS.iter().zip(row.answers) {
            let (path, body) = (fixture.path(row.path), (row.body)(&fixture));
            let body = (!body.is_null()).then_some(&body);
            let (status, answer) = stack.call(fixture.token(caller), row.method, &path, body).await.unwrap();
            let right = if expected == 0 { !matches!(status, 401 | 403 | 500..) } else { status == expected };
            if !right {
                wrong.push(format!("{} {} by {caller}: {status}, not {expected}: {answer}", row.method, row.path));
            }
            let is_problem = answer.get("code").is_some() && answer.get("requestId").is_some();
            if status >= 400 && !is_problem {
                wrong.push(format!("{} {} by {caller}: {status} is not a problem: {answer}", row.method, row.path));
            }
            if row.changes && status < 300 {
                refresh(&stack, &mut fixture).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));

    stack.advance(Duration::from_secs(2 * 3600));
    for row in ROWS.iter().filter(|row| row.answers[6] == 401) {
        let (path, body) = (fixture.path(row.path), (row.body)(&fixture));
        let body = (!body.is_null()).then_some(&body);
        let (status, answer) = stack.call(&fixture.owner.token, row.method, &path, body).await.unwrap();
        if status != 401 {
            wrong.push(format!("{} {} with an expired token: {status}: {answer}", row.method, row.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(stack.services.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_on_sqlite() {
    every_cell(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_on_postgres() {
    every_cell(Backend::Postgres).await;
}

#[test]
fn every_route_has_its_row() {
    let known: BTreeSet<_> = ROWS.iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    let tables = api::tables();
    let rows = tables.iter().flat_map(Routes::rows);
    let there: BTreeSet<(String, String)> = rows.map(|row| (row.method.to_string(), row.path.to_owned())).collect();
    let missing: Vec<_> = there.difference(&known).collect();
    assert!(missing.is_empty(), "routes without a row in the access matrix: {missing:?}");
    let removed: Vec<_> = known.difference(&there).collect();
    assert!(removed.is_empty(), "rows for routes that do not exist: {removed:?}");
}
