//! What operations cost the database: `tests/costs.toml`.

use ensemble_testkit::{Costs, on_both_databases};
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, owner) = fixture.user();
        owner.post("/v1/machines", &draft("m-0")).await.expect(201);
        let mut costs = Costs::new("machine-registry", on, &fixture.database.url);
        let nothing = async || {};
        let number = std::cell::Cell::new(0);
        costs.count("register a machine", nothing, async |()| {
            number.set(number.get() + 1);
            owner.post("/v1/machines", &draft(&format!("m-{}", number.get()))).await.expect(201);
        }).await;
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
