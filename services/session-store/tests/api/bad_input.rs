//! Invalid requests: a clear problem, nothing written, no 500.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use ensemble_testkit::{Api, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, batch, messages};

/// A JSON string with this many bytes.
fn large(bytes: usize) -> Value {
    Value::String("x".repeat(bytes))
}

on_both_databases! {
    async fn an_invalid_body_names_the_field_and_writes_nothing(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let rows = fixture.rows().await;
        let draft = owner.draft();
        let with = |base: &Value, field: &str, value: Value| {
            let mut body = base.clone();
            body[field] = value;
            body
        };
        let message = json!({ "content": "c", "localId": "l" });
        let share = json!({ "userId": fixture.peers.new_user(), "accessLevel": "view", "encryptedKey": "k" });
        let sessions = "/v1/sessions".to_owned();
        let session = format!("/v1/sessions/{id}");
        let (appends, batches) = (messages(&id), batch(&id));
        let shares = format!("{session}/shares");
        let mut cases: Vec<(&str, &String, Value, &str)> = vec![
            ("POST", &sessions, json!({}), "/metadata"),
            ("POST", &sessions, json!([]), ""),
            ("POST", &sessions, json!("x"), ""),
            ("POST", &sessions, with(&draft, "machineId", json!("a/b")), "/machineId"),
            ("POST", &sessions, with(&draft, "machineId", json!("")), "/machineId"),
            ("POST", &sessions, with(&draft, "metadata", json!("")), "/metadata"),
            ("POST", &sessions, with(&draft, "metadata", large(262_145)), "/metadata"),
            ("POST", &sessions, with(&draft, "encryptionKey", large(8_193)), "/encryptionKey"),
            ("POST", &sessions, with(&draft, "tag", large(129)), "/tag"),
            ("POST", &sessions, with(&draft, "tag", json!("")), "/tag"),
            ("PATCH", &session, json!({}), ""),
            ("PATCH", &session, json!({ "unknown": 1 }), ""),
            ("PATCH", &session, json!({ "status": "gone" }), "/status"),
            ("PATCH", &session, json!({ "archived": "yes" }), "/archived"),
            ("PATCH", &session, json!({ "agentState": large((1 << 20) + 1).as_str() }), "/agentState"),
            ("PATCH", &session, json!({ "heartbeat": 1 }), "/heartbeat"),
            ("PATCH", &session, json!({ "heartbeat": { "thinking": 1 } }), "/heartbeat/thinking"),
            ("PATCH", &session, json!({ "metadata": "m", "expectedVersion": "1" }), "/expectedVersion"),
            ("PATCH", &session, json!({ "metadata": "m", "expectedVersion": 1.5 }), "/expectedVersion"),
            ("POST", &appends, json!({ "localId": "l" }), "/content"),
            ("POST", &appends, json!({ "content": "c" }), "/localId"),
            ("POST", &appends, with(&message, "localId", large(129)), "/localId"),
            ("POST", &appends, with(&message, "content", large((1 << 20) + 1)), "/content"),
            ("POST", &appends, with(&message, "keyEpoch", json!(0)), "/keyEpoch"),
            ("POST", &appends, with(&message, "keyEpoch", json!("1")), "/keyEpoch"),
            ("POST", &appends, with(&message, "keyEpoch", json!(9_007_199_254_740_992_i64)), "/keyEpoch"),
            (
                "POST",
                &batches,
                json!({ "messages": [message, { "content": "c", "localId": 5 }] }),
                "/messages/1/localId",
            ),
            ("POST", &batches, json!({ "messages": {} }), "/messages"),
            ("POST", &shares, with(&share, "userId", json!("no-id")), "/userId"),
            ("POST", &shares, with(&share, "accessLevel", json!("owner")), "/accessLevel"),
            ("POST", &shares, with(&share, "encryptedKey", json!("")), "/encryptedKey"),
        ];
        for field in ["machineId", "metadata", "encryptionKey"] {
            for wrong in [json!(null), json!(5), json!(true), json!([]), json!({})] {
                if field == "machineId" && wrong.is_null() {
                    continue;
                }
                cases.push((
                    "POST",
                    &sessions,
                    with(&draft, field, wrong),
                    match field {
                        "machineId" => "/machineId",
                        "metadata" => "/metadata",
                        _ => "/encryptionKey",
                    },
                ));
            }
        }
        for (method, path, body, pointer) in cases {
            let answer = Api::send(owner.api.request(method, path).json(&body)).await;
            assert_eq!(answer.status, 400, "{method} {path} {pointer}: {}", answer.text);
            assert_eq!(answer.bad_fields(), [pointer], "{method} {path}: {}", answer.text);
        }
        assert_eq!(fixture.rows().await, rows);
        assert_eq!(owner.api.get(&session).await.expect(200)["metadataVersion"], 1);
    }

    async fn ambiguous_json_is_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let rows = fixture.rows().await;
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        for (what, body) in [
            ("empty", String::new()),
            ("cut off", r#"{"content":"c","localId":"l""#.to_owned()),
            ("two values", r#"{"content":"c","localId":"l"} {}"#.to_owned()),
            ("a key twice", r#"{"content":"c","content":"d","localId":"l"}"#.to_owned()),
            ("a key twice, once escaped", r#"{"content":"c","\u0063ontent":"d","localId":"l"}"#.to_owned()),
            ("U+0000", r#"{"content":"c\u0000","localId":"l"}"#.to_owned()),
            ("U+0000 in a key", r#"{"content":"c","localId":"l","a\u0000":1}"#.to_owned()),
            ("a lone high surrogate", r#"{"content":"\ud800","localId":"l"}"#.to_owned()),
            ("a lone low surrogate", r#"{"content":"\udc00x","localId":"l"}"#.to_owned()),
            ("10,000 deep", format!(r#"{{"content":"c","localId":"l","x":{deep}}}"#)),
            ("33 deep", format!(r#"{{"content":"c","localId":"l","x":{}1{}}}"#, "[".repeat(33), "]".repeat(33))),
            ("NaN", r#"{"content":"c","localId":"l","keyEpoch":NaN}"#.to_owned()),
        ] {
            let answer = owner.api.post_text(&messages(&id), body).await;
            assert_eq!(answer.status, 400, "{what}: {}", answer.text);
            let problem = answer.problem(400, "INVALID_JSON");
            // It is JSON by its grammar, so the detail has to say what is wrong.
            assert!(!what.contains("U+0000") || problem["detail"].as_str().unwrap().contains("U+0000"), "{problem}");
        }
        let mut bytes = br#"{"content":"#.to_vec();
        bytes.extend_from_slice(b"\"\xff\xfe\",\"localId\":\"l\"}");
        owner.api.post_text(&messages(&id), bytes).await.problem(400, "INVALID_JSON");
        assert_eq!(fixture.rows().await, rows);
    }

    async fn requests_without_complete_json_are_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let rows = fixture.rows().await;
        let body = r#"{"content":"c","localId":"l"}"#;
        for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let request = owner.api.request("POST", &messages(&id)).header("Content-Type", content_type).body(body);
            Api::send(request).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
        }
        let zipped = owner
            .api
            .request("POST", &messages(&id))
            .header("Content-Type", "application/json")
            .header("Content-Encoding", "gzip")
            .body(body);
        Api::send(zipped).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
        owner.api.post_text(&messages(&id), "x".repeat((16 << 20) + 1)).await.problem(413, "PAYLOAD_TOO_LARGE");
        let put = Api::send(owner.api.request("PUT", &messages(&id)).json(&json!({}))).await;
        put.problem(405, "METHOD_NOT_ALLOWED");
        assert!(put.header("allow").is_some_and(|allow| allow.contains("POST")));
        owner.api.get("/v1/nothing/here").await.problem(404, "NOT_FOUND");
        // A body that is shorter than its Content-Length.
        let address = fixture.service.public_addr;
        let token = fixture.peers.issuer().user(owner.id);
        let path = messages(&id);
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let head = [
                format!("POST {path} HTTP/1.1"),
                "Host: x".to_owned(),
                format!("Authorization: Bearer {token}"),
                "Content-Type: application/json".to_owned(),
                "Content-Length: 500".to_owned(),
            ];
            write!(stream, "{}\r\n\r\n{{\"content\":\"c\",", head.join("\r\n")).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer
        })
        .await
        .unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!(fixture.rows().await, rows);
    }

    async fn read_only_fields_are_ignored(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, other) = (fixture.client(), fixture.client());
        let mut draft = owner.draft();
        for (field, value) in [
            ("ownerId", json!(other.id)),
            ("lastSeq", json!(99)),
            ("keyEpoch", json!(9)),
            ("createdAt", json!("2020-01-01T00:00:00Z")),
        ] {
            draft[field] = value;
        }
        let made = owner.api.post("/v1/sessions", &draft).await.expect(201);
        assert_eq!((&made["ownerId"], &made["lastSeq"], &made["keyEpoch"]), (&json!(owner.id), &json!(0), &json!(1)));
        let id = made["id"].as_str().unwrap();
        let sent = json!({ "content": "c", "localId": "l", "seq": 50, "senderId": other.id, "id": other.id });
        let stored = owner.api.post(&messages(id), &sent).await.expect(201);
        assert_eq!((&stored["seq"], &stored["senderId"]), (&json!(1), &json!(owner.id)));
    }
}
