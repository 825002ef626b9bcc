//! Sessions: create, read, list, update, delete.

use ensemble_testkit::{Backend, SOON, eventually, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, messages};

on_both_databases! {
    async fn a_created_session_reads_back(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let mut draft = owner.draft();
        draft["tag"] = json!("laptop");
        let made = owner.api.post("/v1/sessions", &draft).await.expect(201);
        for (field, value) in [
            ("ownerId", json!(owner.id)),
            ("machineId", json!(owner.machine)),
            ("tag", json!("laptop")),
            ("metadata", json!("sealed metadata")),
            ("metadataVersion", json!(1)),
            ("encryptionKey", json!("sealed key")),
            ("agentState", json!(null)),
            ("agentStateVersion", json!(0)),
            ("status", json!("active")),
            ("endedAt", json!(null)),
            ("archived", json!(false)),
            ("online", json!(false)),
            ("thinking", json!(false)),
            ("lastActiveAt", json!(null)),
            ("lastSeq", json!(0)),
            ("accessLevel", json!("owner")),
            ("encryptedKey", json!(null)),
            ("keyEpoch", json!(1)),
            ("rekeyNeeded", json!(false)),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
        let id = made["id"].as_str().unwrap();
        assert_eq!(owner.api.get(&format!("/v1/sessions/{id}")).await.expect(200), made);
        assert_eq!(made["createdAt"].as_str().unwrap().len(), "2026-03-26T00:00:00.000Z".len());
    }

    async fn a_page_of_a_list_ends_at_four_mebibytes_with_the_keys(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        // Sixteen metadata alone would fit.
        let draft = json!({ "metadata": "m".repeat(256 << 10), "encryptionKey": "k".repeat(8 << 10) });
        for _ in 0..16 {
            owner.api.post("/v1/sessions", &draft).await.expect(201);
        }
        let first = owner.api.get("/v1/sessions").await.expect(200);
        assert_eq!(first["sessions"].as_array().unwrap().len(), 15);
        let next = format!("/v1/sessions?cursor={}", first["nextCursor"].as_str().unwrap());
        assert_eq!(owner.api.get(&next).await.expect(200)["sessions"].as_array().unwrap().len(), 1);
    }

    async fn the_same_tag_gives_the_same_session(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let mut draft = owner.draft();
        draft["tag"] = json!("one");
        let tries = (0..12).map(|_| {
            let (api, draft) = (owner.api.clone(), draft.clone());
            tokio::spawn(async move { api.post("/v1/sessions", &draft).await })
        });
        let mut answers = Vec::new();
        for task in tries.collect::<Vec<_>>() {
            answers.push(task.await.unwrap());
        }
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        let ids: std::collections::HashSet<_> = answers.iter().map(|answer| answer.json()["id"].to_string()).collect();
        assert_eq!(ids.len(), 1, "{answers:?}");
        // Tags of different owners are independent, and the tag of a deleted session is free.
        let other = fixture.client();
        let mut theirs = other.draft();
        theirs["tag"] = json!("one");
        other.api.post("/v1/sessions", &theirs).await.expect(201);
        let id = answers[0].json()["id"].as_str().unwrap().to_owned();
        owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
        owner.api.post("/v1/sessions", &draft).await.expect(201);
    }

    async fn an_idempotency_key_creates_one_session(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let key = "k".repeat(20);
        let draft = owner.draft();
        let tries = (0..12).map(|_| {
            let (api, draft, key) = (owner.api.clone(), draft.clone(), key.clone());
            tokio::spawn(async move { api.post_keyed("/v1/sessions", &key, &draft).await })
        });
        let mut ids = std::collections::HashSet::new();
        let mut created = 0;
        for task in tries.collect::<Vec<_>>() {
            let answer = task.await.unwrap();
            created += usize::from(answer.status == 201);
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
            ids.insert(answer.json()["id"].to_string());
        }
        assert_eq!((created, ids.len()), (1, 1));
        let mut other = draft.clone();
        other["metadata"] = json!("something else");
        owner.api.post_keyed("/v1/sessions", &key, &other).await.problem(409, "IDEMPOTENCY_MISMATCH");
        // Keys of different users are independent.
        let stranger = fixture.client();
        stranger.api.post_keyed("/v1/sessions", &key, &stranger.draft()).await.expect(201);
        // A replay returns the current session, or 404 when it is deleted.
        let id =
            owner.api.post_keyed("/v1/sessions", &key, &draft).await.expect(200)["id"].as_str().unwrap().to_owned();
        owner.api.patch(&format!("/v1/sessions/{id}"), &json!({ "metadata": "newer" })).await.expect(200);
        assert_eq!(owner.api.post_keyed("/v1/sessions", &key, &draft).await.expect(200)["metadata"], "newer");
        owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
        owner.api.post_keyed("/v1/sessions", &key, &draft).await.problem(404, "NOT_FOUND");
        // A key sent with an existing tag is bound to the existing session.
        let mut tagged = owner.draft();
        tagged["tag"] = json!("t");
        let there = owner.api.post("/v1/sessions", &tagged).await.expect(201);
        for _ in 0..2 {
            assert_eq!(
                owner.api.post_keyed("/v1/sessions", &"t".repeat(16), &tagged).await.expect(200)["id"],
                there["id"]
            );
        }
        owner.api.post_keyed("/v1/sessions", "short", &draft).await.problem(400, "INVALID_ARGUMENT");
    }

    async fn versions_let_one_writer_win(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}");
        let writers = (0..10).map(|n| {
            let (api, path) = (owner.api.clone(), path.clone());
            tokio::spawn(async move {
                api.patch(&path, &json!({ "metadata": format!("by {n}"), "expectedVersion": 1 })).await
            })
        });
        let mut won = Vec::new();
        for task in writers.collect::<Vec<_>>() {
            let answer = task.await.unwrap();
            match answer.status {
                200 => won.push(answer.json()["metadata"].clone()),
                _ => {
                    let problem = answer.problem(409, "VERSION_MISMATCH");
                    assert_eq!(problem["current"]["version"], 2);
                    assert!(problem["current"]["value"].as_str().unwrap().starts_with("by "));
                }
            }
        }
        assert_eq!(won.len(), 1);
        let now = owner.api.get(&path).await.expect(200);
        assert_eq!((&now["metadata"], &now["metadataVersion"]), (&won[0], &json!(2)));
        // Two fields, one with a stale version: nothing is changed.
        let both =
            json!({ "metadata": "x", "agentState": "y", "expectedMetadataVersion": 2, "expectedAgentStateVersion": 5 });
        let problem = owner.api.patch(&path, &both).await.problem(409, "VERSION_MISMATCH");
        assert_eq!(problem["current"], json!({ "version": 0, "value": null }));
        assert_eq!(owner.api.get(&path).await.expect(200)["metadataVersion"], 2);
        let right =
            json!({ "metadata": "x", "agentState": "y", "expectedMetadataVersion": 2, "expectedAgentStateVersion": 0 });
        let changed = owner.api.patch(&path, &right).await.expect(200);
        assert_eq!((&changed["metadataVersion"], &changed["agentStateVersion"]), (&json!(3), &json!(1)));
        // Without an expected version, the last write wins.
        assert_eq!(owner.api.patch(&path, &json!({ "agentState": "z" })).await.expect(200)["agentStateVersion"], 2);
    }

    async fn ended_online_and_archived_are_independent(on: Backend) {
        let fixture = Fixture::start_with(on, &[("SESSION_ONLINE_MS", "400")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}");
        let ended = owner.api.patch(&path, &json!({ "status": "ended" })).await.expect(200);
        assert_eq!(ended["status"], "ended");
        assert!(ended["endedAt"].is_string());
        assert_eq!(owner.api.get("/v2/sessions/active").await.expect(200)["sessions"], json!([]));
        // An ended session accepts messages and heartbeats, and neither reactivates it.
        owner.append(&id, "a", "late").await;
        let before = owner.api.get(&path).await.expect(200);
        let beating = owner.api.patch(&path, &json!({ "heartbeat": { "thinking": true } })).await.expect(200);
        assert_eq!(
            (&beating["online"], &beating["thinking"], &beating["status"]),
            (&json!(true), &json!(true), &json!("ended"))
        );
        assert_eq!(beating["updatedAt"], before["updatedAt"], "a heartbeat is no update");
        // Ending a session again keeps the first time.
        let again = owner.api.patch(&path, &json!({ "status": "ended", "archived": true })).await.expect(200);
        assert_eq!((&again["endedAt"], &again["archived"]), (&ended["endedAt"], &json!(true)));
        let open = owner.api.patch(&path, &json!({ "status": "active" })).await.expect(200);
        assert_eq!(
            (&open["status"], &open["endedAt"], &open["archived"]),
            (&json!("active"), &json!(null), &json!(true))
        );
        eventually(SOON, async || {
            let now = owner.api.get(&path).await.expect(200);
            now["online"] == false && now["thinking"] == false
        })
        .await;
    }

    async fn a_new_key_raises_the_epoch(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let guest = fixture.guest(&owner, &id, "view").await;
        let path = format!("/v1/sessions/{id}");
        owner.api.delete(&format!("{path}/shares/{}", guest.id)).await.expect(200);
        assert_eq!(owner.api.get(&path).await.expect(200)["rekeyNeeded"], true);
        assert_eq!(owner.api.patch(&path, &json!({ "encryptionKey": "k2" })).await.bad_fields(), ["/expectedKeyEpoch"]);
        let problem = owner
            .api
            .patch(&path, &json!({ "encryptionKey": "k2", "expectedKeyEpoch": 7 }))
            .await
            .problem(409, "VERSION_MISMATCH");
        assert_eq!(problem["current"], json!({ "version": 1, "value": "sealed key" }));
        let rekeyed =
            owner.api.patch(&path, &json!({ "encryptionKey": "k2", "expectedKeyEpoch": 1 })).await.expect(200);
        assert_eq!(
            (&rekeyed["keyEpoch"], &rekeyed["rekeyNeeded"], &rekeyed["encryptionKey"]),
            (&json!(2), &json!(false), &json!("k2"))
        );
    }

    async fn cursors_walk_the_whole_list(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let mut made = Vec::new();
        for _ in 0..7 {
            made.push(owner.session().await);
        }
        // A message of another minute moves its session to the front of the list.
        let minute = match on {
            Backend::Postgres => "interval '1 minute'",
            Backend::Sqlite => "60000000",
        };
        fixture.execute(&format!("UPDATE sessions SET updated_at = updated_at - {minute}")).await;
        let first = made.remove(0);
        owner.append(&first, "a", "x").await;
        made.push(first);
        made.reverse();
        let (mut walked, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = owner.api.get(&format!("/v1/sessions?limit=3{cursor}")).await.expect(200);
            walked.extend(page["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(walked, made);
        let cursor = owner.api.get("/v1/sessions?limit=3").await.expect(200)["nextCursor"].as_str().unwrap().to_owned();
        owner.api.get(&format!("/v2/sessions/active?cursor={cursor}")).await.problem(400, "INVALID_CURSOR");
        fixture.client().api.get(&format!("/v1/sessions?cursor={cursor}")).await.problem(400, "INVALID_CURSOR");
        for bad in ["limit=0", "limit=501", "limit=-1", "limit=x", "include=all"] {
            assert_eq!(owner.api.get(&format!("/v1/sessions?{bad}")).await.bad_fields().len(), 1, "{bad}");
        }
    }

    async fn shared_sessions_are_listed_when_asked_for(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, guest) = (fixture.client(), fixture.client());
        let mine = guest.session().await;
        let mut theirs = Vec::new();
        for _ in 0..3 {
            let id = owner.session().await;
            owner.share(&id, &guest, "view").await;
            theirs.push(id);
        }
        owner.session().await;
        let own = guest.api.get("/v1/sessions").await.expect(200);
        assert_eq!(own["sessions"].as_array().unwrap().len(), 1);
        let (mut walked, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = guest.api.get(&format!("/v1/sessions?include=shared&limit=2{cursor}")).await.expect(200);
            walked.extend(page["sessions"].as_array().unwrap().clone());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let ids: Vec<_> = walked.iter().map(|s| s["id"].as_str().unwrap()).collect();
        assert_eq!(ids, [theirs[2].as_str(), &theirs[1], &theirs[0], &mine]);
        assert_eq!(walked[0]["accessLevel"], "view");
        assert_eq!(walked[0]["encryptedKey"], format!("key of {}", guest.id));
        assert_eq!((&walked[0]["encryptionKey"], &walked[0]["tag"]), (&json!(null), &json!(null)));
        owner.api.patch(&format!("/v1/sessions/{}", theirs[0]), &json!({ "status": "ended" })).await.expect(200);
        let active = guest.api.get("/v2/sessions/active?include=shared").await.expect(200);
        assert_eq!(active["sessions"].as_array().unwrap().len(), 3);
    }

    async fn a_deleted_session_is_gone_for_everyone_and_then_purged(on: Backend) {
        let fixture = Fixture::start_with(on, &[("PURGE_MS", "500")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let guest = fixture.guest(&owner, &id, "edit").await;
        owner.fill(&id, 1_200).await;
        let link = owner.api.post(&format!("/v1/sessions/{id}/public-share"), &json!({})).await.expect(201);
        owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
        for client in [&owner, &guest] {
            client.api.get(&format!("/v1/sessions/{id}")).await.problem(404, "NOT_FOUND");
            client.api.get(&messages(&id)).await.problem(404, "NOT_FOUND");
            client.api.post(&messages(&id), &json!({ "content": "x", "localId": "x" })).await.problem(404, "NOT_FOUND");
        }
        assert_eq!(owner.api.delete(&format!("/v1/sessions/{id}")).await.status, 404);
        let token = link["token"].as_str().unwrap();
        fixture.anonymous().get(&format!("/v1/public-sessions/{token}")).await.problem(404, "LINK_NOT_FOUND");
        assert_eq!(guest.api.get("/v1/sessions?include=shared").await.expect(200)["sessions"], json!([]));
        eventually(SOON, async || fixture.rows().await == 0).await;
    }

    async fn a_session_needs_no_machine(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        for machine in [None, Some(json!(null))] {
            let mut draft = owner.draft();
            let fields = draft.as_object_mut().unwrap();
            fields.remove("machineId");
            fields.extend(machine.map(|machine| ("machineId".to_owned(), machine)));
            let session = owner.api.post("/v1/sessions", &draft).await.expect(201);
            assert_eq!(session["machineId"], json!(null));
            let id = session["id"].as_str().unwrap();
            assert_eq!(owner.api.get(&format!("/v1/sessions/{id}")).await.expect(200)["machineId"], json!(null));
        }
        let listed = owner.api.get("/v1/sessions").await.expect(200);
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 2);
    }

    async fn a_foreign_machine_is_not_found(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, other) = (fixture.client(), fixture.client());
        let mut draft = owner.draft();
        draft["machineId"] = json!(other.machine);
        owner.api.post("/v1/sessions", &draft).await.problem(404, "MACHINE_NOT_FOUND");
        assert_eq!(owner.api.get("/v1/sessions").await.expect(200)["sessions"], json!([]));
    }
}
