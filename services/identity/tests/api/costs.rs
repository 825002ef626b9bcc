//! What operations cost: `tests/costs.toml`.

use ensemble_testkit::{Costs, explained, on_both_databases};

use crate::{Fixture, ORIGIN, new_key, signed};

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = explained(Fixture::new(on)).await;
        let (key, api, _) = fixture.account().await;
        let mut costs = Costs::new("identity", on, &fixture.database.url);
        let nothing = async || {};
        costs.count("challenge", nothing, async |()| drop(fixture.challenge().await)).await;
        costs.count("sign in", async || signed(&key, ORIGIN, &fixture.challenge().await), async |body| {
            fixture.api.post("/v1/auth", &body).await.expect(200);
        }).await;
        costs.count("sign in with a new account", async || signed(&new_key(), ORIGIN, &fixture.challenge().await), async |body| {
            fixture.api.post("/v1/auth", &body).await.expect(200);
        }).await;
        costs.count("read the own account", nothing, async |()| {
            api.get("/v1/account").await.expect(200);
        }).await;
        costs.check();
    }
}
