//! Appends: stored once, in order, all or nothing.

use std::collections::HashSet;

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, batch, messages, seqs};

on_both_databases! {
    async fn messages_are_numbered_and_read_back(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let first = owner.append(&id, "a", "one \"quoted\" \\ \u{1} ü 🦀").await;
        assert_eq!(
            (&first["seq"], &first["localId"], &first["senderId"], &first["keyEpoch"]),
            (&json!(1), &json!("a"), &json!(owner.id), &json!(null))
        );
        let second = owner
            .api
            .post(&messages(&id), &json!({ "content": "two", "localId": "b", "keyEpoch": 1 }))
            .await
            .expect(201);
        assert_eq!((&second["seq"], &second["keyEpoch"]), (&json!(2), &json!(1)));
        let page = owner.api.get(&messages(&id)).await.expect(200);
        assert_eq!(page["messages"], json!([second, first]), "newest first");
        assert_eq!((&page["hasMore"], &page["lastSeq"]), (&json!(false), &json!(2)));
        assert_eq!(owner.api.get(&format!("/v1/sessions/{id}")).await.expect(200)["lastSeq"], 2);
    }

    async fn a_repeated_local_id_returns_the_first_message(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let guest = fixture.guest(&owner, &id, "edit").await;
        let first = owner.append(&id, "same", "first").await;
        let again =
            owner.api.post(&messages(&id), &json!({ "content": "second", "localId": "same" })).await.expect(200);
        assert_eq!(again, first);
        // Local ids of different senders are independent.
        assert_eq!(guest.append(&id, "same", "theirs").await["seq"], 2);
        // So are local ids in different sessions.
        let other = owner.session().await;
        assert_eq!(owner.append(&other, "same", "there").await["seq"], 1);
    }

    async fn concurrent_appends_of_one_local_id_store_one_message(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let tasks = (0..64).map(|n| {
            let (api, path) = (owner.api.clone(), messages(&id));
            tokio::spawn(
                async move { api.post(&path, &json!({ "content": format!("try {n}"), "localId": "one" })).await },
            )
        });
        let mut records = HashSet::new();
        let mut created = 0;
        for task in tasks.collect::<Vec<_>>() {
            let answer = task.await.unwrap();
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
            created += usize::from(answer.status == 201);
            records.insert(answer.json().to_string());
        }
        assert_eq!((created, records.len()), (1, 1));
        assert_eq!(owner.history(&id).await.len(), 1);
    }

    async fn a_batch_is_stored_in_order_or_not_at_all(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.append(&id, "b", "was there").await;
        let four = json!({ "messages": [
            { "content": "1", "localId": "a" },
            { "content": "2", "localId": "b" },
            { "content": "3", "localId": "c" },
            { "content": "4", "localId": "a" },
        ]});
        let stored = owner.api.post(&batch(&id), &four).await.expect(201);
        assert_eq!(seqs(&stored["messages"]), [2, 1, 3, 2]);
        let contents: Vec<_> =
            stored["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
        assert_eq!(contents, ["1", "was there", "3", "1"]);
        let again = owner.api.post(&batch(&id), &four).await.expect(200);
        assert_eq!(again, stored);
        // One invalid message: nothing of the batch is stored.
        let bad = json!({ "messages": [{ "content": "x", "localId": "x" }, { "content": "", "localId": "y" }] });
        assert_eq!(owner.api.post(&batch(&id), &bad).await.bad_fields(), ["/messages/1/content"]);
        let many: Vec<Value> = (0..201).map(|n| json!({ "content": "x", "localId": n.to_string() })).collect();
        assert_eq!(owner.api.post(&batch(&id), &json!({ "messages": many })).await.bad_fields(), ["/messages"]);
        assert_eq!(owner.api.post(&batch(&id), &json!({ "messages": [] })).await.bad_fields(), ["/messages"]);
        // One path takes one shape.
        let one = json!({ "content": "x", "localId": "x" });
        assert_eq!(owner.api.post(&batch(&id), &one).await.bad_fields(), ["/messages"]);
        assert_eq!(owner.api.post(&messages(&id), &json!({ "messages": [one] })).await.bad_fields(), ["/content"]);
        assert_eq!(seqs(&json!(owner.history(&id).await)), [1, 2, 3]);
        let full: Vec<Value> = (0..200).map(|n| json!({ "content": "x", "localId": format!("full {n}") })).collect();
        let full = owner.api.post(&batch(&id), &json!({ "messages": full })).await.expect(201);
        assert_eq!(seqs(&full["messages"]), (4..204).collect::<Vec<_>>());
    }

    async fn a_message_has_no_key_that_its_session_has_not_got(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let message = |local_id: &str, epoch: i64| json!({ "content": "c", "localId": local_id, "keyEpoch": epoch });
        let early = owner.api.post(&messages(&id), &message("early", 2)).await;
        assert_eq!(early.bad_fields(), ["/keyEpoch"]);
        assert!(early.text.contains("at most 1") && early.text.contains("`encryptionKey`"), "{}", early.text);
        let several = json!({ "messages": [message("a", 1), message("b", 2)] });
        assert_eq!(owner.api.post(&batch(&id), &several).await.bad_fields(), ["/messages/1/keyEpoch"]);
        assert_eq!(owner.history(&id).await.len(), 0);
        let key = json!({ "encryptionKey": "k2", "expectedKeyEpoch": 1 });
        owner.api.patch(&format!("/v1/sessions/{id}"), &key).await.expect(200);
        // What was sealed before is taken as well: a guest may not have the new key yet.
        owner.api.post(&batch(&id), &several).await.expect(201);
    }

    async fn concurrent_writers_leave_no_gap(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let others: Vec<_> = [owner.session().await, owner.session().await].into();
        let writers = (0..64).map(|writer| {
            let (api, id, others) = (owner.api.clone(), id.clone(), others.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0..12 {
                    // Every fourth message goes to another session, so that batches mix sessions.
                    let session = if n % 4 == 3 { &others[writer % 2] } else { &id };
                    let body = json!({ "content": format!("{writer}-{n}"), "localId": format!("{writer}-{n}") });
                    let stored = api.post(&messages(session), &body).await.expect(201);
                    if session == &id {
                        acknowledged
                            .push((stored["seq"].as_i64().unwrap(), stored["content"].as_str().unwrap().to_owned()));
                    }
                }
                acknowledged
            })
        });
        // A concurrent reader never sees a `seq` before all smaller ones.
        let reader = tokio::spawn({
            let (owner, id) = (owner.clone(), id.clone());
            async move {
                let mut seen = 0;
                while seen < 64 * 9 {
                    let page = owner.api.get(&format!("{}?after={seen}&limit=100", messages(&id))).await.expect(200);
                    for seq in seqs(&page["messages"]) {
                        assert_eq!(seq, seen + 1);
                        seen = seq;
                    }
                }
            }
        });
        let mut acknowledged = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            acknowledged.extend(writer.await.unwrap());
        }
        reader.await.unwrap();
        acknowledged.sort();
        let stored: Vec<(i64, String)> = owner
            .history(&id)
            .await
            .iter()
            .map(|m| (m["seq"].as_i64().unwrap(), m["content"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(stored, acknowledged);
        assert_eq!(stored.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=64 * 9).collect::<Vec<_>>());
    }

    async fn appends_beyond_the_queue_limit_are_refused(on: Backend) {
        let fixture = Fixture::start_with(on, &[("APPEND_QUEUE_BYTES", "4096")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.append(&id, "fits", "x").await;
        let large = json!({ "content": "x".repeat(8_192), "localId": "does not fit" });
        let refused = owner.api.post(&messages(&id), &large).await;
        refused.problem(503, "UNAVAILABLE");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(owner.history(&id).await.len(), 1);
    }
}
