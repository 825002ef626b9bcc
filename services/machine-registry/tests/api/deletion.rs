//! DELETE /v1/machines/{id}, and the notification of peers.

use ensemble_machine_registry::MachineRegistry;
use ensemble_testkit::{SOON, eventually, on_both_databases, start_service};
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn a_deleted_machine_is_gone_and_peers_are_notified(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(alice.delete("/v1/machines/m").await.expect(200), json!({ "success": true }));
        assert_eq!(fixture.peers.ended_machines().len(), 1, "no lease is granted after the answer");
        assert_eq!(fixture.peers.revoked_machines().len(), 1, "no token works for long after the answer");
        alice.get("/v1/machines/m").await.problem(404, "NOT_FOUND");
        alice.delete("/v1/machines/m").await.problem(404, "NOT_FOUND");
        assert_eq!(alice.get("/v1/machines").await.expect(200)["machines"], json!([]));
        let peers = &fixture.peers;
        let (revoked, ended) = (peers.revoked_machines(), peers.ended_machines());
        assert_eq!((revoked[0].user_id.as_str(), revoked[0].machine_id.as_str()), (user.to_string().as_str(), "m"));
        assert_eq!((ended[0].user_id.as_str(), ended[0].machine_id.as_str()), (user.to_string().as_str(), "m"));
        assert_eq!(revoked[0].made_until, ended[0].deleted_at);
        assert!(ended[0].deleted_at > 1_700_000_000_000_000);
        let again = alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(again["metadataVersion"], 1, "the id is free again");
    }

    async fn unreachable_peers_are_notified_later(on: Backend) {
        // A peer that is away does not answer.
        let fixture = Fixture::with(on, &[("DEPARTURE_RETRY_MS", "100"), ("RPC_DEADLINE_MS", "1000")]).await;
        let (_, alice) = fixture.user();
        let peers = &fixture.peers;
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        alice.post("/v1/machines", &draft("n")).await.expect(201);
        peers.orchestrator_away(true);
        peers.identity_away(true);
        alice.delete("/v1/machines/m").await.expect(200);
        alice.delete("/v1/machines/n").await.expect(200);
        peers.identity_away(false);
        eventually(SOON, async || peers.revoked_machines().len() == 2).await;
        assert_eq!(peers.ended_machines().len(), 0);
        peers.orchestrator_away(false);
        eventually(SOON, async || peers.ended_machines().len() == 2).await;
        let mut notified: Vec<String> = peers.ended_machines().into_iter().map(|end| end.machine_id).collect();
        notified.sort();
        assert_eq!(notified, ["m", "n"]);
        assert_eq!(peers.revoked_machines().len(), 2, "a peer that has answered is not notified again");
    }

    async fn a_deletion_is_notified_after_a_restart(on: Backend) {
        let fixture = Fixture::with(on, &[("DEPARTURE_RETRY_MS", "100"), ("RPC_DEADLINE_MS", "1000")]).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        fixture.peers.identity_away(true);
        fixture.peers.orchestrator_away(true);
        alice.delete("/v1/machines/m").await.expect(200);
        let Fixture { peers, service, vars, database: _database } = fixture;
        assert!(service.stop().await);
        peers.identity_away(false);
        peers.orchestrator_away(false);
        let again = start_service::<MachineRegistry>(vars).await;
        eventually(SOON, async || peers.revoked_machines().len() == 1).await;
        eventually(SOON, async || peers.ended_machines().len() == 1).await;
        assert!(again.stop().await);
    }
}

/// Replicas share the work: a deletion that one has taken is not taken by another.
#[test]
fn replicas_notify_each_deletion_once() {
    ensemble_testkit::run(async {
        let fixture = Fixture::with(ensemble_testkit::Backend::Postgres, &[("DEPARTURE_RETRY_MS", "600000")]).await;
        let replicas = [fixture.replica().await, fixture.replica().await];
        let (_, alice) = fixture.user();
        let mut together = Vec::new();
        for n in 0..30 {
            let api = alice.at(&replicas[n % 2].public_url());
            together.push(tokio::spawn(async move {
                let id = format!("m{n}");
                api.post("/v1/machines", &draft(&id)).await.expect(201);
                api.delete(&format!("/v1/machines/{id}")).await.expect(200);
            }));
        }
        for one in together {
            one.await.unwrap();
        }
        eventually(SOON, async || fixture.peers.ended_machines().len() >= 30).await;
        eventually(SOON, async || fixture.peers.revoked_machines().len() >= 30).await;
        for mut notified in [
            fixture.peers.ended_machines().into_iter().map(|end| end.machine_id).collect::<Vec<_>>(),
            fixture.peers.revoked_machines().into_iter().map(|revoke| revoke.machine_id).collect(),
        ] {
            notified.sort();
            notified.dedup();
            assert_eq!(notified.len(), 30);
        }
        assert_eq!(fixture.peers.ended_machines().len(), 30, "no peer is notified twice");
    });
}
