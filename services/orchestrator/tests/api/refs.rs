//! Refs in paths, and refs of runs that were there before refs.

use ensemble_store_kit::{DatabaseConfig, Db};
use ensemble_testkit::{Backend, on_both_databases, sql};
use ensemble_types::refs::Ref;
use serde_json::json;

use crate::fixture::{Fixture, RUNS, execute, number, task};

on_both_databases! {
    async fn a_ref_stands_for_the_id_in_every_path(on: Backend) {
        let fixture = Fixture::new(on).await;
        let made = fixture.submit(json!([task("a"), task("b")])).await;
        let path = format!("{RUNS}/{}", made["ref"].as_str().unwrap());
        let read = fixture.api.get(&path).await.expect(200);
        assert_eq!((&read["id"], &read["tasks"][0]["ref"]), (&made["id"], &made["tasks"][0]["ref"]));
        assert_ne!(read["tasks"][0]["ref"], read["tasks"][1]["ref"]);
        assert_eq!(fixture.api.get(RUNS).await.expect(200)["runs"][0]["ref"], made["ref"]);
        let pended = fixture.api.get(&format!("{path}/pend?cursor=0&timeoutMs=0")).await.expect(200);
        assert_eq!(pended["ref"], made["ref"]);
        assert_eq!(pended["changedTasks"][0]["ref"], made["tasks"][0]["ref"]);
        let output = format!("{path}/tasks/{}/output", made["tasks"][0]["ref"].as_str().unwrap());
        assert_eq!(fixture.api.get(&output).await.status, 200);
        assert_eq!(fixture.api.post(&format!("{path}/cancel"), &json!({})).await.expect(200)["id"], made["id"]);
        fixture.api.post(&format!("{path}/retry"), &json!({})).await.expect(200);
        fixture.api.post(&format!("{path}/cancel"), &json!({})).await.expect(200);
        fixture.api.delete(&path).await.expect(200);
        fixture.api.get(&path).await.problem(404, "NOT_FOUND");
    }

    async fn a_ref_is_computed_from_the_id_also_of_rows_that_were_there(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let made = fixture.submit(json!([task("a"), task("b")])).await;
        let (run, first) = (&made, &made["tasks"][0]);
        for one in [run, first] {
            assert_eq!(one["ref"], Ref::of(&one["id"].as_str().unwrap()).to_string());
        }
        fixture.stop().await;
        let url = &fixture.url;
        for table in ["runs", "task_specs"] {
            sql::execute(url, &format!("UPDATE {table} SET ref = substr(ref, 5) || substr(ref, 1, 4)")).await;
        }
        sql::forget_migration(url, "20261215000000").await;
        Db::migrate(&DatabaseConfig::new(url.parse().unwrap()), ensemble_orchestrator::migrations()).await.unwrap();
        fixture.start(&[]).await;
        let read = fixture.api.get(&format!("{RUNS}/{}", run["ref"].as_str().unwrap())).await.expect(200);
        assert_eq!((&read["id"], &read["tasks"][0]["ref"]), (&run["id"], &first["ref"]));
    }

    async fn a_ref_that_two_accounts_have_does_not_stop_the_way_back(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let made = fixture.submit(json!([task("a")])).await;
        fixture.other_account().post(RUNS, &json!({ "tasks": [task("b")] })).await.expect(201);
        fixture.stop().await;
        let url = fixture.url.clone();
        execute(&url, "UPDATE runs SET ref = '00000000'").await;
        let down = match on {
            Backend::Postgres => include_str!("../../migrations/postgres/2026-12-15-000000_computed_refs/down.sql"),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-12-15-000000_computed_refs/down.sql"),
        };
        execute(&url, down).await;
        assert_eq!(number(&fixture, "SELECT count(DISTINCT ref) FROM runs").await, 2);
        assert_eq!(number(&fixture, "SELECT count(*) FROM runs WHERE ref = '00000000'").await, 1);
        sql::forget_migration(&url, "20261215000000").await;
        Db::migrate(&DatabaseConfig::new(url.parse().unwrap()), ensemble_orchestrator::migrations()).await.unwrap();
        fixture.start(&[]).await;
        fixture.api.get(&format!("{RUNS}/{}", made["ref"].as_str().unwrap())).await.expect(200);
    }

    async fn two_accounts_may_have_one_ref(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let made = fixture.submit(json!([task("a")])).await;
        let stranger = fixture.other_account();
        let theirs = stranger.post(RUNS, &json!({ "tasks": [task("b")] })).await.expect(201);
        let url = fixture.url.clone();
        for table in ["runs", "task_specs"] {
            execute(&url, &format!("UPDATE {table} SET ref = '00000000'")).await;
        }
        for (caller, run) in [(&fixture.api, &made), (&stranger, &theirs)] {
            let read = caller.get(&format!("{RUNS}/00000000")).await.expect(200);
            assert_eq!((&read["id"], &read["tasks"][0]["ref"]), (&run["id"], &json!("00000000")));
            assert_eq!(caller.get(&format!("{RUNS}/00000000/tasks/00000000/output")).await.status, 200);
        }
        fixture.stop().await;
        let down = match on {
            Backend::Postgres => include_str!("../../migrations/postgres/2026-12-18-000000_task_refs/down.sql"),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-12-18-000000_task_refs/down.sql"),
        };
        execute(&url, down).await;
        assert_eq!(number(&fixture, "SELECT count(*) FROM task_specs WHERE ref = '00000000'").await, 1);
    }

    async fn a_ref_gives_no_access(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (made, other) = (fixture.submit(json!([task("a")])).await, fixture.submit(json!([task("b")])).await);
        let path = format!("{RUNS}/{}", made["ref"].as_str().unwrap());
        let stranger = fixture.other_account();
        stranger.get(&path).await.problem(404, "NOT_FOUND");
        stranger.delete(&path).await.problem(404, "NOT_FOUND");
        let own = stranger.post(RUNS, &json!({ "tasks": [task("c")] })).await.expect(201);
        for run in [&own["ref"], &other["ref"]] {
            let (run, task) = (run.as_str().unwrap(), made["tasks"][0]["ref"].as_str().unwrap());
            stranger.get(&format!("{RUNS}/{run}/tasks/{task}/output")).await.problem(404, "NOT_FOUND");
        }
        for unknown in ["00000000", "0000000u", "last"] {
            fixture.api.get(&format!("{RUNS}/{unknown}")).await.problem(404, "NOT_FOUND");
        }
    }
}
