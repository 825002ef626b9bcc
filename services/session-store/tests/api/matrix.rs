//! The access matrix: every route of the table, for everybody there is. A route without its row fails.

use std::collections::BTreeSet;

use ensemble_chassis::Service;
use ensemble_session_store::SessionStore;
use ensemble_testkit::{Answer, Api, on_both_databases};
use serde_json::{Value, json};

use crate::world::{Person, World};

const WHO: [&str; 11] = [
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

/// A call, and what each of [`WHO`] gets. `{id}`, `{link}` and `{edit}` … stand for the cell's own session, link and guests.
struct Row {
    method: &'static str,
    route: &'static str,
    path: &'static str,
    body: fn(&Cell) -> Value,
    gets: [u16; 11],
}

/// One session with its people, made anew for each call, since some calls leave nothing behind.
struct Cell {
    owner: Person,
    admin: Person,
    edit: Person,
    view: Person,
    revoked: Person,
    newcomer: Person,
    other_admin: Person,
    session: String,
    link: String,
}

/// What may be done by owner, admin, edit, view; everybody else gets the same everywhere.
const fn members(owner: u16, admin: u16, edit: u16, view: u16) -> [u16; 11] {
    [owner, admin, edit, view, 404, 404, 401, 403, 401, 401, 401]
}

const NOTHING: fn(&Cell) -> Value = |_| Value::Null;
const EVERYONE: [u16; 11] = [200; 11];
/// Calls on one's own account: everybody with an account has one.
const SELF: [u16; 11] = [200, 200, 200, 200, 200, 200, 401, 403, 401, 401, 401];

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    const ID: &str = "/v1/sessions/{id}";
    const MESSAGES: &str = "/v3/sessions/{id}/messages";
    const SHARES: &str = "/v1/sessions/{id}/shares";
    const SHARE: &str = "/v1/sessions/{id}/shares/{userId}";
    const LINK: &str = "/v1/sessions/{id}/public-share";
    let row = |method, route, path, body, gets| Row { method, route, path, body, gets };
    let share = |level: &'static str| -> fn(&Cell) -> Value {
        match level {
            "admin" => |cell| json!({ "userId": cell.newcomer.id, "accessLevel": "admin", "encryptedKey": "k" }),
            "edit" => |cell| json!({ "userId": cell.newcomer.id, "accessLevel": "edit", "encryptedKey": "k" }),
            _ => |cell| json!({ "userId": cell.newcomer.id, "accessLevel": "view", "encryptedKey": "k" }),
        }
    };
    let of_admin: fn(&Cell) -> Value = |cell| json!({ "userId": cell.other_admin.id, "accessLevel": "view", "encryptedKey": "k" });
    let view: fn(&Cell) -> Value = |_| json!({ "accessLevel": "view" });
    vec![
        // A machine of one's own is made for the callers who have an account; the rest never get so far.
        row("POST", "/v1/sessions", "/v1/sessions", NOTHING, [400, 400, 400, 400, 400, 400, 401, 403, 401, 401, 401]),
        row("GET", "/v1/sessions", "/v1/sessions", NOTHING, SELF),
        row("GET", "/v2/sessions/active", "/v2/sessions/active", NOTHING, SELF),
        row("GET", ID, ID, NOTHING, members(200, 200, 200, 200)),
        row("PATCH", ID, ID, |_| json!({ "heartbeat": {} }), members(200, 200, 200, 403)),
        row("PATCH", ID, ID, |_| json!({ "metadata": "m" }), members(200, 200, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "agentState": "a" }), members(200, 200, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "status": "ended" }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "archived": true }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "encryptionKey": "k", "expectedKeyEpoch": 1 }), members(200, 403, 403, 403)),
        row("PATCH", ID, ID, |_| json!({ "metadata": "m", "archived": true }), members(200, 403, 403, 403)),
        row("DELETE", ID, ID, NOTHING, members(200, 403, 403, 403)),
        row("POST", MESSAGES, MESSAGES, |_| json!({ "content": "c", "localId": "l" }), members(201, 201, 201, 403)),
        row("GET", MESSAGES, MESSAGES, NOTHING, members(200, 200, 200, 200)),
        row("GET", "/v3/sessions/{id}/messages/stream", "/v3/sessions/{id}/messages/stream", NOTHING, members(200, 200, 200, 200)),
        row("GET", SHARES, SHARES, NOTHING, members(200, 403, 403, 403)),
        row("POST", SHARES, SHARES, share("view"), members(201, 201, 403, 403)),
        row("POST", SHARES, SHARES, share("edit"), members(201, 201, 403, 403)),
        row("POST", SHARES, SHARES, share("admin"), members(201, 403, 403, 403)),
        row("POST", SHARES, SHARES, of_admin, members(200, 403, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{edit}", view, members(200, 200, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{edit}", |_| json!({ "accessLevel": "admin" }), members(200, 403, 403, 403)),
        row("PATCH", SHARE, "/v1/sessions/{id}/shares/{other_admin}", view, members(200, 403, 403, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{edit}", NOTHING, members(200, 200, 200, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{view}", NOTHING, members(200, 200, 403, 200)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{admin}", NOTHING, members(200, 200, 403, 403)),
        row("DELETE", SHARE, "/v1/sessions/{id}/shares/{other_admin}", NOTHING, members(200, 403, 403, 403)),
        row("POST", LINK, LINK, |_| json!({}), members(200, 403, 403, 403)),
        row("DELETE", LINK, LINK, NOTHING, members(200, 403, 403, 403)),
        row("GET", "/v1/public-sessions/{token}", "/v1/public-sessions/{link}", NOTHING, EVERYONE),
        // Without a view token there is nothing to follow, whoever asks.
        row("GET", "/v1/public-sessions/{token}/stream", "/v1/public-sessions/{link}/stream", NOTHING, [404; 11]),
    ]
}

impl Cell {
    async fn new(world: &World) -> Self {
        let owner = world.person();
        let session = owner.session().await;
        let revoked = world.guest(&owner, &session, "admin").await;
        owner.api.delete(&format!("/v1/sessions/{session}/shares/{}", revoked.id)).await.expect(200);
        let link = owner.api.post(&format!("/v1/sessions/{session}/public-share"), &json!({})).await.expect(201);
        Self {
            admin: world.guest(&owner, &session, "admin").await,
            edit: world.guest(&owner, &session, "edit").await,
            view: world.guest(&owner, &session, "view").await,
            other_admin: world.guest(&owner, &session, "admin").await,
            revoked,
            newcomer: world.person(),
            owner,
            session,
            link: link["token"].as_str().unwrap().to_owned(),
        }
    }

    fn api(&self, who: &str, world: &World) -> Api {
        let (anonymous, issuer) = (world.anonymous(), world.peers.issuer());
        match who {
            "owner" => self.owner.api.clone(),
            "admin" => self.admin.api.clone(),
            "edit" => self.edit.api.clone(),
            "view" => self.view.api.clone(),
            "revoked" => self.revoked.api.clone(),
            "stranger" => self.newcomer.api.clone(),
            // These would be the owner's, if they were good for anything here.
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
    async fn everybody_gets_what_the_matrix_says(on: Backend) {
        let world = World::new(on).await;
        let rows = rows();
        let routes: BTreeSet<String> = SessionStore::routes().rows().iter().map(|row| format!("{} {}", row.method, row.path)).collect();
        let covered: BTreeSet<String> = rows.iter().map(|row| format!("{} {}", row.method, row.route)).collect();
        assert_eq!(routes, covered, "each route needs a row here, and each row a route");
        let mut wrong = Vec::new();
        for row in &rows {
            let harmless = row.method == "GET";
            let mut cell = Cell::new(&world).await;
            for (who, gets) in WHO.iter().zip(row.gets) {
                let answer = call(&world, &cell, row, who).await;
                if answer.status != gets {
                    wrong.push(format!("{} {} by {who}: {} instead of {gets}: {}", row.method, row.path, answer.status, answer.text));
                }
                if answer.status < 300 && !harmless {
                    cell = Cell::new(&world).await;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

async fn call(world: &World, cell: &Cell, row: &Row, who: &str) -> Answer {
    let api = cell.api(who, world);
    let request = api.request(row.method, &cell.fill(row.path));
    let body = (row.body)(cell);
    let request = match (row.method, &body) {
        ("POST", Value::Null) => request.json(&json!({})),
        (_, Value::Null) => request,
        _ => request.json(&body),
    };
    if row.route.ends_with("stream") {
        // A stream has no end to wait for.
        let response = request.send().await.unwrap();
        return Answer { status: response.status().as_u16(), headers: response.headers().clone(), text: String::new() };
    }
    Api::send(request).await
}
