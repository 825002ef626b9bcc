//! Who may call what about devices: each row of the access matrix, with each kind of caller.

use ensemble_testkit::{Api, on_both_databases};
use ensemble_types::devices::Role;
use serde_json::{Value, json};

use crate::listing::{Keys, Owner, change, sign};
use crate::{Fixture, invites};

/// A call, its body, and the status for a primary, a linked device, recovery words, a removed device, a stranger, no caller and a
/// machine. 0 is any success.
struct Row(&'static str, String, Value, [u16; 7]);

on_both_databases! {
    async fn every_cell(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let [linked, words, gone, runner] = [(); 4].map(|()| Keys::new());
        alice.link(&fixture, &linked, Role::Linked).await;
        alice.link(&fixture, &gone, Role::Primary).await;
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        alice.put_with(alice.with(runner.entry(Role::Machine)), &[&runner]).await;
        let removed = fixture.client(&gone).await;
        alice.put(alice.without(&gone)).await;
        let stranger = Owner::new(&fixture).await;
        let callers: [(&str, Api); 7] = [
            ("primary", alice.api.clone()),
            ("linked", fixture.client(&linked).await),
            ("recovery", fixture.client(&words).await),
            ("removed", removed),
            ("stranger", stranger.api.clone()),
            ("no caller", fixture.api.clone()),
            ("machine", fixture.client(&runner).await),
        ];
        let devices = alice.api.get("/v1/devices").await.expect(200);
        let id = devices["devices"][0]["id"].as_str().unwrap();
        let linked_id = devices["devices"][1]["id"].as_str().unwrap();
        let link = alice.open_link().await;
        let invite = invites::open(&alice.api).await;
        // It is signed for another invitation.
        let claim = json!(invites::claim(&stranger, "other", "Bob"));
        let (user, other) = (&alice.user, &stranger.user);
        // Everybody may send a list that a primary has signed already: the signature decides.
        let list = change(&alice.signed);
        let by_linked = change(&sign(&alice.next(), &linked));
        let notify = json!({ "notify": [] });
        for Row(method, path, body, statuses) in [
            Row("GET", "/v1/devices".into(), Value::Null, [0, 0, 0, 401, 0, 401, 403]),
            Row("POST", "/v1/devices".into(), list, [0, 0, 0, 401, 400, 401, 403]),
            Row("POST", "/v1/devices".into(), by_linked, [400, 400, 400, 401, 400, 401, 403]),
            Row("GET", "/v1/devices/content-ring".into(), Value::Null, [0, 0, 0, 401, 0, 401, 403]),
            Row("PATCH", format!("/v1/devices/{id}"), notify.clone(), [0, 403, 403, 401, 404, 401, 403]),
            Row("PATCH", format!("/v1/devices/{linked_id}"), notify, [403, 0, 403, 401, 404, 401, 403]),
            Row("GET", format!("/v1/users/{user}/devices"), Value::Null, [0, 0, 0, 401, 0, 401, 0]),
            Row("GET", format!("/v1/users/{other}/devices"), Value::Null, [0, 0, 404, 401, 0, 401, 0]),
            Row("GET", format!("/v1/auth/links/{link}"), Value::Null, [0; 7]),
            Row("POST", "/v1/auth/links".into(), json!({}), [0, 403, 403, 401, 0, 401, 403]),
            Row("POST", format!("/v1/auth/links/{link}/refusal"), json!({}), [0, 0, 403, 401, 404, 401, 403]),
            Row("GET", format!("/v1/invites/{invite}"), Value::Null, [0; 7]),
            Row("GET", "/v1/invites".into(), Value::Null, [0, 0, 403, 401, 0, 401, 403]),
            Row("POST", "/v1/invites".into(), invites::body(), [0, 0, 403, 401, 0, 401, 403]),
            Row("POST", format!("/v1/invites/{invite}/claim"), claim, [400, 400, 403, 401, 400, 401, 403]),
            Row("POST", format!("/v1/invites/{invite}/answer"), json!({ "answer": "x" }), [409, 409, 403, 401, 404, 401, 403]),
            Row("DELETE", format!("/v1/invites/{invite}"), Value::Null, [0, 0, 403, 401, 404, 401, 403]),
            Row("GET", "/v1/account".into(), Value::Null, [0, 0, 403, 401, 0, 401, 403]),
            Row("PATCH", "/v1/account".into(), json!({ "displayName": "x" }), [0, 0, 403, 401, 0, 401, 403]),
            Row("GET", "/v1/auth/tokens".into(), Value::Null, [0, 0, 403, 401, 0, 401, 403]),
            Row("GET", format!("/v1/users/{user}"), Value::Null, [0, 0, 403, 401, 0, 401, 403]),
        ] {
            for ((who, api), expected) in callers.iter().zip(statuses) {
                let request = api.request(method, &path);
                let answer = Api::send(if body.is_null() { request } else { request.json(&body) }).await;
                let is_right = if expected == 0 { answer.status < 300 } else { answer.status == expected };
                assert!(is_right, "{method} {path} by {who}: {}", answer.text);
                if *who == "removed" && expected == 401 {
                    answer.problem(401, "DEVICE_REMOVED");
                }
            }
        }
        // The account that made a link sees who asked, with a user's token only.
        let link = alice.open_link().await;
        let request = json!(Keys::new().request(&link, crate::ORIGIN));
        fixture.api.post(&format!("/v1/auth/links/{link}/request"), &request).await.expect(200);
        for ((who, api), sees) in callers.iter().zip([true, true, false, false, false, false, false]) {
            let found = api.get(&format!("/v1/auth/links/{link}")).await.expect(200);
            assert_eq!(found["request"].is_object(), sees, "{who}");
        }
        let unsigned = callers[1].1.post("/v1/devices", &change(&sign(&alice.next(), &linked))).await;
        unsigned.problem(400, "INVALID_ARGUMENT");
        let relayed = change(&sign(&alice.next(), &alice.keys));
        callers[1].1.post("/v1/devices", &relayed).await.expect(201);
    }

    async fn anybody_who_knows_a_link_may_ask_whatever_the_bearer(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Owner::new(&fixture).await;
        for token in [None, Some("x"), Some("ey.x.x")] {
            let link = alice.open_link().await;
            let api = token.map_or_else(|| fixture.api.clone(), |token| fixture.api.with_token(token));
            let request = Keys::new().request(&link, crate::ORIGIN);
            let answer = api.post(&format!("/v1/auth/links/{link}/request"), &json!(request)).await.expect(200);
            assert_eq!(answer, json!({ "state": "asked" }));
        }
    }
}
