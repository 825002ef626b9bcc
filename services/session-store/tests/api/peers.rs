//! What goes on working when a peer is away; and two replicas that are peers to each other.

use std::time::{Duration, Instant};

use ensemble_testkit::{Events, on_both_databases};
use ensemble_types::ids::UserId;
use serde_json::json;

use crate::world::{World, messages, seqs};

on_both_databases! {
    async fn without_machine_registry_known_machines_go_on(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        owner.session().await;
        world.peers.machine_registry_away(true);
        let known = owner.session().await;
        owner.append(&known, "a", "x").await;
        let stranger = world.person();
        let refused = stranger.api.post("/v1/sessions", &stranger.draft()).await;
        refused.problem(503, "UNAVAILABLE");
        assert!(refused.header("retry-after").is_some());
        world.peers.machine_registry_away(false);
        stranger.session().await;
    }

    async fn without_identity_known_keys_hold(on: Backend) {
        let world = World::with(on, &[("KEYS_TRUSTED_MS", "1500")]).await;
        let owner = world.person();
        let id = owner.session().await;
        world.peers.identity_away(true);
        owner.append(&id, "a", "x").await;
        let share = json!({ "userId": world.peers.new_user(), "accessLevel": "view", "encryptedKey": "k" });
        owner.api.post(&format!("/v1/sessions/{id}/shares"), &share).await.problem(503, "UNAVAILABLE");
        ensemble_testkit::eventually(Duration::from_secs(5), async || {
            owner.api.get("/v1/sessions").await.status == 503
        })
        .await;
        world.peers.identity_away(false);
        ensemble_testkit::eventually(Duration::from_secs(5), async || {
            owner.api.get("/v1/sessions").await.status == 200
        })
        .await;
        let nobody = json!({ "userId": UserId::generate(), "accessLevel": "view", "encryptedKey": "k" });
        owner.api.post(&format!("/v1/sessions/{id}/shares"), &nobody).await.problem(404, "USER_NOT_FOUND");
    }

    async fn bad_tokens_are_refused(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        for (what, token) in world.peers.issuer().bad_tokens(owner.id) {
            let api = world.anonymous().with_token(&token);
            let refused = api.get(&messages(&id)).await;
            assert_eq!(refused.status, 401, "{what}: {refused:?}");
            assert!(refused.header("www-authenticate").is_some());
        }
    }
}

#[test]
fn an_append_at_one_replica_reaches_a_stream_at_the_other_at_once() {
    ensemble_testkit::run(async {
        let world = World::with(ensemble_testkit::Backend::Postgres, &[("SWEEP_MS", "60000")]).await;
        let there = world.replica().await;
        let owner = world.person();
        let id = owner.session().await;
        let away = owner.api.at(&there.public_url());
        let mut events = Events::open(away.request("GET", &format!("{}/stream?after=0", messages(&id)))).await;
        // The first may have to wait until the replica listens.
        owner.append(&id, "first", "x").await;
        events.expect().await;
        let mut slowest = Duration::ZERO;
        for n in 0..50 {
            let begun = Instant::now();
            let sent = owner.append(&id, &n.to_string(), "x").await;
            assert_eq!(events.expect().await.id, Some(sent["seq"].to_string()));
            slowest = slowest.max(begun.elapsed());
        }
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        // Both number one session without a gap, and a revoke at one ends streams at the other.
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
        let guest = world.guest(&owner, &id, "view").await;
        let path = format!("{}/stream", messages(&id));
        let mut watched = Events::open(guest.api.at(&there.public_url()).request("GET", &path)).await;
        owner.api.delete(&format!("/v1/sessions/{id}/shares/{}", guest.id)).await.expect(200);
        let begun = Instant::now();
        assert_eq!(watched.expect().await.name, "end");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_lost_wake_up_is_found_by_the_sweep() {
    ensemble_testkit::run(async {
        let world = World::with(ensemble_testkit::Backend::Postgres, &[("SWEEP_MS", "200")]).await;
        let owner = world.person();
        let id = owner.session().await;
        let mut events = Events::open(owner.api.request("GET", &format!("{}/stream", messages(&id)))).await;
        owner.append(&id, "first", "x").await;
        events.expect().await;
        // Written behind the service's back, so that nobody is told.
        let sql = format!(
            "WITH m AS (INSERT INTO messages SELECT session_id, 2, gen_random_uuid(), sender_id, 'quiet', content, \
             NULL, created_at FROM messages WHERE session_id = '{id}' RETURNING 1), \
             s AS (UPDATE sessions SET last_seq = 2 WHERE id = '{id}') SELECT count(*) FROM m"
        );
        world.execute(&sql).await;
        assert_eq!(events.expect().await.id.as_deref(), Some("2"));
    });
}
