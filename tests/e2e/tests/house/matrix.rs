//! Who may do what: every route of every table × every kind of caller. A route without its row here fails the test.

use std::collections::BTreeSet;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ensemble_all_in_one::api;
use ensemble_chassis::auth::{AUDIENCE_USER, Claims, ISSUER, SCOPE_USER, sign};
use ensemble_e2e::{House, Person, VOICE_KEY, text};
use ensemble_testkit::Backend;
use ensemble_types::ids::TokenId;
use serde_json::{Value, json};

/// The columns. The ninth kind, an expired token, is the owner's own two hours later.
const CALLERS: [&str; 10] =
    ["owner", "admin", "edit", "view", "revoked", "stranger", "anonymous", "machine", "voice key", "foreign-signed"];

/// One call and what each caller is answered.
struct Row {
    method: &'static str,
    path: &'static str,
    body: fn(&World) -> Value,
    /// In the order of [`CALLERS`]; 0 where any status but 401 and 403 is right.
    answers: [u16; 10],
    /// Whether the call changes what others in this row would see, so that each caller needs things of its own.
    changes: bool,
}

/// Things that belong to the owner, and the people around them.
struct World {
    owner: Person,
    admin: Person,
    edit: Person,
    view: Person,
    revoked: Person,
    stranger: Person,
    machine_token: String,
    foreign: String,
    session: String,
    link: String,
    run: String,
    task: String,
    token_id: String,
}

impl World {
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
                || t.contains("voice/session/")
                || t.starts_with("/agent/") =>
            {
                NO_ID
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
            ("{gatewaySessionId}", NO_ID),
            ("{gateway_session_id}", NO_ID),
            ("{seq}", "1"),
            ("{file}", "no-such-file"),
            ("{id}", id),
        ] {
            path = path.replace(name, value);
        }
        path
    }
}

/// Well-formed, and nobody's.
const NO_ID: &str = "01932b5e-7b1a-7c3e-8f00-000000000001";

const fn row(method: &'static str, path: &'static str, answers: [u16; 10]) -> Row {
    Row { method, path, body: |_| Value::Null, answers, changes: false }
}

impl Row {
    const fn with(mut self, body: fn(&World) -> Value) -> Self {
        self.body = body;
        self
    }

    const fn changing(mut self) -> Self {
        self.changes = true;
        self
    }
}

/// A session's route: owner, admin, edit, view.
const fn of_session(method: &'static str, path: &'static str, may: [u16; 4]) -> Row {
    row(method, path, [may[0], may[1], may[2], may[3], 404, 404, 401, 403, 401, 401])
}

/// A route on which every user has a world of their own, and machines have no business.
const fn of_user(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, status, status, status, status, status, 401, 403, 401, 401])
}

/// A route to something that belongs to the owner alone.
const fn of_owner(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [status, 404, 404, 404, 404, 404, 401, 403, 401, 401])
}

/// A route for machine tokens.
const fn of_machine(method: &'static str, path: &'static str, status: u16) -> Row {
    row(method, path, [403, 403, 403, 403, 403, 403, 401, status, 401, 401])
}

/// A route that asks for no credentials, and does not mind bad ones.
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
    of_user("PATCH", "/v1/account", 200).with(|_| json!({ "displayName": "Somebody" })),
    of_user("GET", "/v1/users/{id}", 200),
    of_user("POST", "/v1/auth/tokens", 201).with(|_| json!({ "machineId": "m" })),
    of_user("GET", "/v1/auth/tokens", 200),
    of_owner("DELETE", "/v1/auth/tokens/{id}", 200).changing(),
    of_anyone("GET", "/.well-known/jwks.json", 200),
    // machine-registry
    of_user("POST", "/v1/machines", 0).with(|_| json!({ "id": "another", "metadata": "x", "encryptionKey": "x" })),
    of_user("GET", "/v1/machines", 200),
    row("GET", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]),
    row("PATCH", "/v1/machines/{id}", [200, 404, 404, 404, 404, 404, 401, 200, 401, 401]).with(|_| json!({ "activity": {} })),
    of_owner("DELETE", "/v1/machines/{id}", 200).changing(),
    // session-store
    row("POST", "/v1/sessions", [201, 404, 404, 404, 404, 404, 401, 403, 401, 401]).with(|_| json!({ "machineId": "m", "metadata": "x", "encryptionKey": "x" })),
    of_user("GET", "/v1/sessions", 200),
    of_user("GET", "/v2/sessions/active", 200),
    of_session("GET", "/v1/sessions/{id}", [200, 200, 200, 200]),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "metadata": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 403, 403]).with(|_| json!({ "agentState": "new" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 200, 200, 403]).with(|_| json!({ "heartbeat": { "thinking": true } })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "archived": true })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "status": "ended" })),
    of_session("PATCH", "/v1/sessions/{id}", [200, 403, 403, 403]).with(|_| json!({ "encryptionKey": "new", "expectedKeyEpoch": 1 })).changing(),
    of_session("DELETE", "/v1/sessions/{id}", [200, 403, 403, 403]).changing(),
    of_session("POST", "/v3/sessions/{id}/messages", [201, 201, 201, 403]).with(|_| json!({ "content": "x", "localId": "1" })),
    of_session("GET", "/v3/sessions/{id}/messages", [200, 200, 200, 200]),
    of_session("GET", "/v3/sessions/{id}/messages/stream", [200, 200, 200, 200]),
    of_session("GET", "/v1/sessions/{id}/shares", [200, 403, 403, 403]),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 0, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "view", "encryptedKey": "x" })).changing(),
    of_session("POST", "/v1/sessions/{id}/shares", [0, 403, 403, 403]).with(|w| json!({ "userId": w.stranger.id, "accessLevel": "admin", "encryptedKey": "x" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 403]).with(|_| json!({ "accessLevel": "edit" })).changing(),
    of_session("PATCH", "/v1/sessions/{id}/shares/{userId}", [200, 403, 403, 403]).with(|_| json!({ "accessLevel": "admin" })).changing(),
    // {userId} is the viewer, who may leave.
    of_session("DELETE", "/v1/sessions/{id}/shares/{userId}", [200, 200, 403, 200]).changing(),
    of_session("POST", "/v1/sessions/{id}/public-share", [0, 403, 403, 403]).with(|_| json!({})).changing(),
    of_session("DELETE", "/v1/sessions/{id}/public-share", [200, 403, 403, 403]).changing(),
    of_anyone("GET", "/v1/public-sessions/{token}", 200),
    of_anyone("GET", "/v1/public-sessions/{token}/stream", 0),
    // orchestrator
    of_user("POST", "/v1/orchestrator/runs", 201).with(|_| json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] })),
    of_user("GET", "/v1/orchestrator/runs", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/pend", 200).with(|_| json!({ "timeoutMs": 0 })),
    of_owner("GET", "/v1/orchestrator/runs/{id}/pend", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/events", 200),
    of_owner("GET", "/v1/orchestrator/runs/{id}/tasks/{taskId}/output", 200),
    of_owner("POST", "/v1/orchestrator/runs/{id}/cancel", 200).changing(),
    of_owner("POST", "/v1/orchestrator/runs/{id}/retry", 409).changing(),
    of_machine("POST", "/v1/orchestrator/leases", 200).with(|_| json!({ "machineId": "m", "providers": ["gemini"], "capacity": 1, "waitMs": 0 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/heartbeat", 404).with(|_| json!({ "fence": 1 })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/output", 404).with(|_| json!({ "fence": 1, "offset": 0, "data": "x" })),
    of_machine("POST", "/v1/orchestrator/leases/{id}/finish", 404).with(|_| json!({ "fence": 1, "status": "completed" })),
    // voice-gateway: LiveKit is away in this house
    of_voice("POST", "/v1/voice/session/start", 503).with(|w| json!({ "userId": w.owner.id, "sessionId": w.session })),
    of_voice("POST", "/v1/voice/session/stop", 200).with(|_| json!({ "gatewaySessionId": NO_ID })),
    of_voice("GET", "/v1/voice/session/{gatewaySessionId}/status", 404),
    of_voice("POST", "/v1/voice/session/text", 404).with(|_| json!({ "gatewaySessionId": NO_ID, "text": "x" })),
    of_voice("POST", "/v1/voice/session/context", 404).with(|_| json!({ "gatewaySessionId": NO_ID, "payload": {} })),
    of_anyone("POST", "/hooks/livekit", 401),
    of_anyone("GET", "/agent/v1/sessions/{id}/context", 401),
    of_anyone("POST", "/agent/v1/sessions/{id}/events", 401).with(|_| json!({ "kind": "ready" })),
    of_anyone("GET", "/agent/v1/sessions/{id}/texts/{seq}", 401),
    // edge-proxy
    of_anyone("GET", "/", 0),
    of_anyone("GET", "/openapi.json", 200),
    of_anyone("GET", "/docs", 0),
    of_anyone("GET", "/docs/", 200),
    of_anyone("GET", "/docs/{file}", 404),
    of_anyone("GET", "/v1/version", 200),
    of_anyone("GET", "/share/{token}", 200),
    of_anyone("GET", "/healthz", 200),
    of_anyone("GET", "/readyz", 200),
];

async fn world(house: &House) -> World {
    let mut people = Vec::new();
    for _ in 0..6 {
        people.push(house.person().await.unwrap());
    }
    let [owner, admin, edit, view, revoked, stranger]: [Person; 6] = people.try_into().unwrap();
    house.machine(&owner, "m").await.unwrap();
    let foreign = foreign_signed(house, &owner).await;
    let mut world = World {
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
    refresh(house, &mut world).await;
    world
}

/// New things for the owner: a session shared at each level, a link, a run, a token. What is there already stays.
async fn refresh(house: &House, world: &mut World) {
    let owner = world.owner.token.clone();
    house.machine(&world.owner, "m").await.unwrap();
    let made = house.must(&owner, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    world.machine_token = text(&made, "token").unwrap();
    world.session = house.session(&world.owner, "m").await.unwrap();
    let shares = format!("/v1/sessions/{}/shares", world.session);
    for (person, level) in
        [(&world.admin, "admin"), (&world.edit, "edit"), (&world.view, "view"), (&world.revoked, "edit")]
    {
        let share = json!({ "userId": person.id, "accessLevel": level, "encryptedKey": "sealed" });
        house.must(&owner, "POST", &shares, share).await.unwrap();
    }
    house.must(&owner, "DELETE", &format!("{shares}/{}", world.revoked.id), Value::Null).await.unwrap();
    let link = format!("/v1/sessions/{}/public-share", world.session);
    world.link = text(&house.must(&owner, "POST", &link, json!({})).await.unwrap(), "token").unwrap();
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] });
    let run = house.must(&owner, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    world.run = text(&run, "id").unwrap();
    world.task = text(&run["tasks"][0], "id").unwrap();
    let spare = house.must(&owner, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    world.token_id = text(&spare, "id").unwrap();
}

/// Everything right but the key: it bears the name of the real one.
async fn foreign_signed(house: &House, owner: &Person) -> String {
    let keys = house.must("", "GET", "/.well-known/jwks.json", Value::Null).await.unwrap();
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
    };
    sign(&claims, &kid, &SigningKey::from_bytes(&[9; 32])).unwrap()
}

async fn every_cell(backend: Backend) {
    let house = House::open(backend, &[]).await.unwrap();
    let mut world = world(&house).await;
    let mut wrong = Vec::new();
    for row in ROWS {
        for (caller, expected) in CALLERS.iter().zip(row.answers) {
            let (path, body) = (world.path(row.path), (row.body)(&world));
            let body = (!body.is_null()).then_some(&body);
            let (status, answer) = house.call(world.token(caller), row.method, &path, body).await.unwrap();
            let right = if expected == 0 { !matches!(status, 401 | 403 | 500..) } else { status == expected };
            if !right {
                wrong
                    .push(format!("{} {} by {caller}: {status}, should be {expected}: {answer}", row.method, row.path));
            }
            let is_problem = answer.get("code").is_some() && answer.get("requestId").is_some();
            if status >= 400 && !is_problem {
                wrong.push(format!("{} {} by {caller}: {status} is not a problem: {answer}", row.method, row.path));
            }
            if row.changes && status < 300 {
                refresh(&house, &mut world).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));

    house.advance(Duration::from_secs(2 * 3600));
    for row in ROWS.iter().filter(|row| row.answers[6] == 401) {
        let (path, body) = (world.path(row.path), (row.body)(&world));
        let body = (!body.is_null()).then_some(&body);
        let (status, answer) = house.call(&world.owner.token, row.method, &path, body).await.unwrap();
        if status != 401 {
            wrong.push(format!("{} {} with an expired token: {status}: {answer}", row.method, row.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(house.stack.stop().await);
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
    let known: BTreeSet<(String, String)> =
        ROWS.iter().map(|row| (row.method.to_owned(), row.path.to_owned())).collect();
    let document = serde_json::to_value(api::document()).unwrap();
    let mut there = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            there.insert((method.to_uppercase(), path.clone()));
        }
    }
    let missing: Vec<_> = there.difference(&known).collect();
    assert!(missing.is_empty(), "routes without a row in the access matrix: {missing:?}");
    let gone: Vec<_> = known.difference(&there).collect();
    assert!(gone.is_empty(), "rows for routes that are not there: {gone:?}");
}
