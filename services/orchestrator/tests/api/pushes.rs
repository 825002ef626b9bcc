//! What identity is given of runs, to notify their owners' devices of.

use ensemble_testkit::{Backend, SOON, eventually, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, execute, task};

on_both_databases! {
    async fn a_failure_is_given_and_a_short_run_is_not(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        fixture.submit(json!([task("short")])).await;
        runner.complete(&runner.lease_one().await).await;
        let run = fixture.submit(json!([task("fails")])).await;
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        runner.finish(&lease, "failed").await.expect(200);
        eventually(SOON, async || !fixture.peers.pushes(fixture.user).is_empty()).await;
        let given = fixture.peers.pushes(fixture.user);
        assert_eq!(given.len(), 1, "{given:?}");
        let event = &given[0];
        assert_eq!((event.kind.as_str(), event.run_id.as_str()), ("failed", run["id"].as_str().unwrap()));
        assert_eq!((event.session_id.as_str(), event.attention.len()), ("", 11));
    }

    async fn the_end_of_a_long_run_is_given(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let run = fixture.submit(json!([task("long")])).await;
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        let before = match on {
            Backend::Postgres => "UPDATE runs SET started_at = started_at - interval '2 minutes'",
            Backend::Sqlite => "UPDATE runs SET started_at = started_at - 120000000",
        };
        execute(&fixture.url, before).await;
        runner.complete(&lease).await;
        eventually(SOON, async || !fixture.peers.pushes(fixture.user).is_empty()).await;
        let given = fixture.peers.pushes(fixture.user);
        assert_eq!((given.len(), given[0].kind.as_str()), (1, "finished"));
        assert_eq!(given[0].run_id, run["id"].as_str().unwrap());
    }
}
