//! DELETE /v1/machines/{id}, and who is told of it.

use ensemble_testkit::{eventually, on_both_databases};
use serde_json::json;

use crate::{PATIENCE, Stage, draft};

on_both_databases! {
    async fn a_deleted_machine_is_gone_and_its_neighbours_know(on: Backend) {
        let stage = Stage::new(on).await;
        let (user, alice) = stage.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(alice.delete("/v1/machines/m").await.expect(200), json!({ "success": true }));
        alice.get("/v1/machines/m").await.problem(404, "NOT_FOUND");
        alice.delete("/v1/machines/m").await.problem(404, "NOT_FOUND");
        assert_eq!(alice.get("/v1/machines").await.expect(200)["machines"], json!([]));
        let neighbours = &stage.neighbours;
        eventually(PATIENCE, async || !neighbours.revoked_machines().is_empty()).await;
        eventually(PATIENCE, async || !neighbours.ended_machines().is_empty()).await;
        let (revoked, ended) = (neighbours.revoked_machines(), neighbours.ended_machines());
        assert_eq!((revoked[0].user_id.as_str(), revoked[0].machine_id.as_str()), (user.to_string().as_str(), "m"));
        assert_eq!((ended[0].user_id.as_str(), ended[0].machine_id.as_str()), (user.to_string().as_str(), "m"));
        assert_eq!(revoked[0].made_until, ended[0].deleted_at);
        assert!(ended[0].deleted_at > 1_700_000_000_000_000);
        let again = alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(again["metadataVersion"], 1, "the id is free again");
    }

    async fn neighbours_that_are_away_are_told_later(on: Backend) {
        let stage = Stage::with(on, &[("DEPARTURE_RETRY_MS", "100")]).await;
        let (_, alice) = stage.user();
        let neighbours = &stage.neighbours;
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        alice.post("/v1/machines", &draft("n")).await.expect(201);
        neighbours.orchestrator_away(true);
        neighbours.identity_away(true);
        alice.delete("/v1/machines/m").await.expect(200);
        alice.delete("/v1/machines/n").await.expect(200);
        neighbours.identity_away(false);
        eventually(PATIENCE, async || neighbours.revoked_machines().len() == 2).await;
        assert_eq!(neighbours.ended_machines().len(), 0);
        neighbours.orchestrator_away(false);
        eventually(PATIENCE, async || neighbours.ended_machines().len() == 2).await;
        let mut told: Vec<String> = neighbours.ended_machines().into_iter().map(|end| end.machine_id).collect();
        told.sort();
        assert_eq!(told, ["m", "n"]);
        assert_eq!(neighbours.revoked_machines().len(), 2, "who has heard it is not told again");
    }
}
