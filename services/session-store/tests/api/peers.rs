//! What works while a peer service is down, and how two replicas work together.

use ensemble_testkit::{Events, SOON, eventually, on_both_databases};
use ensemble_types::ids::UserId;
use serde_json::json;

use crate::fixture::{Fixture, NO_SWEEP, messages, seqs};

on_both_databases! {
    async fn known_machines_work_without_machine_registry(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        owner.session().await;
        fixture.peers.machine_registry_away(true);
        let known = owner.session().await;
        owner.append(&known, "a", "x").await;
        let stranger = fixture.client();
        let refused = stranger.api.post("/v1/sessions", &stranger.draft()).await;
        refused.problem(503, "UNAVAILABLE");
        assert!(refused.header("retry-after").is_some());
        fixture.peers.machine_registry_away(false);
        stranger.session().await;
    }

    async fn known_keys_work_without_identity_until_they_expire(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let shares = format!("/v1/sessions/{id}/shares");
        fixture.peers.identity_away(true);
        owner.append(&id, "a", "x").await;
        let share = json!({ "userId": fixture.peers.new_user(), "accessLevel": "view", "encryptedKey": "k" });
        owner.api.post(&shares, &share).await.problem(503, "UNAVAILABLE");
        fixture.peers.identity_away(false);
        let unknown = json!({ "userId": UserId::generate(), "accessLevel": "view", "encryptedKey": "k" });
        owner.api.post(&shares, &unknown).await.problem(404, "USER_NOT_FOUND");
        let fixture = fixture.restart("", &[("KEYS_TRUSTED_MS", "1500")]).await;
        let api = owner.api.at(&fixture.service.public_url());
        fixture.peers.identity_away(true);
        eventually(SOON, async || api.get("/v1/sessions").await.status == 503).await;
        fixture.peers.identity_away(false);
        eventually(SOON, async || api.get("/v1/sessions").await.status == 200).await;
    }

    async fn bad_tokens_are_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        for (what, token) in fixture.peers.issuer().bad_tokens(owner.id) {
            let api = fixture.anonymous().with_token(&token);
            let refused = api.get(&messages(&id)).await;
            assert_eq!(refused.status, 401, "{what}: {refused:?}");
            assert!(refused.header("www-authenticate").is_some());
        }
    }
}

#[test]
fn an_append_at_one_replica_reaches_a_stream_at_the_other_without_a_sweep() {
    ensemble_testkit::run(async {
        let fixture = Fixture::start_with(ensemble_testkit::Backend::Postgres, &NO_SWEEP).await;
        let there = fixture.replica_with(&NO_SWEEP).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let away = owner.api.at(&there.public_url());
        let mut events = Events::open(away.request("GET", &format!("{}/stream?after=0", messages(&id)))).await;
        // The first message may have to wait until the replica listens for notifications.
        owner.append(&id, "first", "x").await;
        events.expect().await;
        for n in 0..50 {
            let sent = owner.append(&id, &n.to_string(), "x").await;
            assert_eq!(events.expect().await.id, Some(sent["seq"].to_string()));
        }
        // Both replicas append to one session without a gap, and a revoke at one ends streams at the other.
        let tasks = (0..40).map(|n| {
            let (api, path) = (if n % 2 == 0 { owner.api.clone() } else { away.clone() }, messages(&id));
            tokio::spawn(async move {
                api.post(&path, &json!({ "content": "x", "localId": format!("both {n}") })).await.expect(201)
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(seqs(&json!(owner.history(&id).await)), (1..=91).collect::<Vec<_>>());
        let guest = fixture.guest(&owner, &id, "view").await;
        let path = format!("{}/stream", messages(&id));
        let mut watched = Events::open(guest.api.at(&there.public_url()).request("GET", &path)).await;
        owner.api.delete(&format!("/v1/sessions/{id}/shares/{}", guest.id)).await.expect(200);
        assert_eq!(watched.expect().await.name, "end");
    });
}

#[test]
fn the_sweep_finds_changes_whose_notification_was_lost() {
    ensemble_testkit::run(async {
        let fixture = Fixture::start_with(ensemble_testkit::Backend::Postgres, &[("SWEEP_MS", "200")]).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let mut events = Events::open(owner.api.request("GET", &format!("{}/stream", messages(&id)))).await;
        owner.append(&id, "first", "x").await;
        events.expect().await;
        // Written past the service, so that there is no notification.
        let sql = format!(
            "WITH m AS (INSERT INTO messages SELECT session_id, 2, gen_random_uuid(), sender_id, 'quiet', content, \
             NULL, created_at FROM messages WHERE session_id = '{id}' RETURNING 1), \
             s AS (UPDATE sessions SET last_seq = 2 WHERE id = '{id}') SELECT count(*) FROM m"
        );
        fixture.execute(&sql).await;
        assert_eq!(events.expect().await.id.as_deref(), Some("2"));
    });
}
