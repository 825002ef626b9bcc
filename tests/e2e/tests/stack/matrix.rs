//! The access matrix: every route and every kind of caller. A route without a row here fails the test.

mod rows;

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

use rows::ROWS;

/// The columns. An expired token is tested separately, with the owner's token two hours later.
const CALLERS: [&str; 10] =
    ["owner", "admin", "edit", "view", "revoked", "stranger", "anonymous", "machine", "voice key", "foreign-signed"];

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
