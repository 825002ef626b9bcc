//! Providers other than the three that every service knows: a machine has to offer them.

use ensemble_store_kit::{DatabaseConfig, Db};
use ensemble_testkit::{Answer, Api, Backend, on_both_databases, sql};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, RUNS, Runner, execute, path};

fn task(provider: &str) -> Value {
    json!({ "prompt": "x", "provider": provider })
}

async fn submit(api: &Api, provider: &str) -> Answer {
    api.post(RUNS, &json!({ "tasks": [task("codex"), task(provider)] })).await
}

/// The providers of the leases that a machine gets when it offers these.
async fn offer(machine: &Runner, providers: &[&str]) -> Vec<Value> {
    let body = json!({ "machineId": machine.id, "providers": providers, "capacity": 8, "waitMs": 0 });
    machine.api.post(LEASES, &body).await.expect(200)["leases"].as_array().unwrap().clone()
}

fn names(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["provider"].as_str().unwrap()).collect()
}

/// The machines have looked for work so much earlier.
async fn let_days_pass(fixture: &Fixture, days: u64) {
    let earlier = match fixture.url.starts_with("sqlite:") {
        true => format!("{days} * 86400000000"),
        false => format!("interval '{days} days'"),
    };
    execute(&fixture.url, &format!("UPDATE runners SET seen_until = seen_until - {earlier}")).await;
}

on_both_databases! {
    async fn a_provider_that_a_machine_offers_does_tasks(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (machine, other) = (fixture.runner(), fixture.runner());
        assert!(offer(&other, &["pi-2", "p"]).await.is_empty());
        assert!(offer(&machine, &["claude", "pi"]).await.is_empty());
        let run = submit(&fixture.api, "pi").await.expect(201);
        assert!(offer(&other, &["pi-2", "p"]).await.is_empty(), "names that only begin or end alike");
        let sixteen: Vec<String> = (0..15).map(|at| format!("agent-{at}")).chain(["pi".to_owned()]).collect();
        let sixteen: Vec<&str> = sixteen.iter().map(String::as_str).collect();
        let leases = offer(&machine, &sixteen).await;
        assert_eq!(names(&leases), ["pi"]);
        let seventeen = [&sixteen[..], &["claude"]].concat();
        let seventeen = json!({ "machineId": machine.id, "providers": seventeen, "capacity": 1 });
        assert_eq!(machine.api.post(LEASES, &seventeen).await.bad_fields(), ["/providers"]);

        machine.report(&leases[0], "finish", json!({ "status": "quota" })).await.expect(200);
        assert!(offer(&machine, &["pi"]).await.is_empty());
        let reason = fixture.run(&run).await["tasks"][1]["waitingReason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with(&format!("pi's limit on {} is reached", machine.id)), "{reason}");
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let lease = offer(&machine, &["pi"]).await.pop().unwrap();
        let done = json!({ "status": "completed", "usage": { "inputTokens": 7, "outputTokens": 1 } });
        machine.report(&lease, "finish", done).await.expect(200);
        let usage = fixture.api.get("/v1/orchestrator/usage?by=provider").await.expect(200);
        assert_eq!((&usage["items"][0]["provider"], &usage["items"][0]["inputTokens"]), (&json!("pi"), &json!(7)));
    }

    async fn a_provider_that_no_machine_has_offered_in_thirty_days_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let machine = fixture.runner();
        for known in ["claude", "codex", "gemini"] {
            submit(&fixture.api, known).await.expect(201);
        }
        let refused = |answer: Answer| {
            assert_eq!(answer.bad_fields(), ["/tasks/1/provider"]);
            assert!(answer.text.contains("claude, codex or gemini"), "{}", answer.text);
        };
        refused(submit(&fixture.api, "pi").await);
        offer(&machine, &["pi"]).await;
        submit(&fixture.api, "pi").await.expect(201);
        refused(submit(&fixture.other_account(), "pi").await);
        let_days_pass(&fixture, 29).await;
        submit(&fixture.api, "pi").await.expect(201);
        let_days_pass(&fixture, 2).await;
        refused(submit(&fixture.api, "pi").await);
        for bad in ["Pi", "2pi", "p i", "pi,claude", "", &"p".repeat(33)] {
            assert_eq!(submit(&fixture.api, bad).await.bad_fields(), ["/tasks/1/provider"], "{bad:?}");
            let body = json!({ "machineId": machine.id, "providers": [bad], "capacity": 1, "waitMs": 0 });
            assert_eq!(machine.api.post(LEASES, &body).await.bad_fields(), ["/providers/0"], "{bad:?}");
        }
    }

    async fn tasks_that_were_there_keep_their_providers(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("gemini"), task("claude")])).await;
        fixture.stop().await;
        let url = fixture.url.clone();
        let down = match on {
            Backend::Postgres => include_str!("../../migrations/postgres/2026-12-19-000000_open_providers/down.sql"),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-12-19-000000_open_providers/down.sql"),
        };
        execute(&url, down).await;
        sql::forget_migration(&url, "20261219000000").await;
        Db::migrate(&DatabaseConfig::new(url.parse().unwrap()), ensemble_orchestrator::migrations()).await.unwrap();
        fixture.start(&[]).await;
        let read = fixture.run(&run).await;
        assert_eq!((&read["tasks"][0]["provider"], &read["tasks"][1]["provider"]), (&json!("gemini"), &json!("claude")));
        let machine = fixture.runner();
        assert_eq!(names(&offer(&machine, &["gemini", "pi"]).await), ["gemini"]);
        submit(&fixture.api, "pi").await.expect(201);
        assert_eq!(names(&offer(&machine, &["pi"]).await), ["pi"]);
    }
}
