//! What operations cost: `tests/costs.toml`.

use ensemble_testkit::{Costs, explained, on_both_databases};
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = explained(Fixture::new(on)).await;
        let (_, owner) = fixture.user();
        owner.post("/v1/machines", &draft("m-0")).await.expect(201);
        let costs = Costs::new("machine-registry", on, &fixture.database.url);
        let mut costs = costs.with_requests(|| fixture.peers.requests());
        let nothing = async || {};
        costs.count("check a token", nothing, async |()| {
            owner.post("/v1/machines", &json!({})).await.problem(400, "INVALID_ARGUMENT");
        }).await;
        costs.count("register a machine", async || fixture.user(), async |(_, owner)| {
            owner.post("/v1/machines", &draft("m-0")).await.expect(201);
        }).await;
        for number in 1..8 {
            owner.post("/v1/machines", &draft(&format!("m-{number}"))).await.expect(201);
        }
        costs.count("heartbeat of a machine", nothing, async |()| {
            owner.patch("/v1/machines/m-0", &json!({ "activity": {} })).await.expect(200);
        }).await;
        costs.count("read a machine", nothing, async |()| {
            owner.get("/v1/machines/m-0").await.expect(200);
        }).await;
        costs.count("list of machines", nothing, async |()| {
            owner.get("/v1/machines").await.expect(200);
        }).await;
        costs.check();
    }
}
