//! Submitting, listing and reading runs, and who may do so.

use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, path, task};

on_both_databases! {
    async fn an_idempotency_key_creates_one_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = json!({ "tasks": [task("a")], "title": "Once" });
        let first = fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        let runner = fixture.runner();
        runner.complete(&runner.lease_one().await).await;
        let again = fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(200);
        assert_eq!((&again["id"], &again["status"]), (&first["id"], &json!("completed")));
        let other = json!({ "tasks": [task("b")] });
        fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &other).await.problem(409, "IDEMPOTENCY_MISMATCH");
        fixture.api.post_keyed(RUNS, "short", &body).await.problem(400, "INVALID_ARGUMENT");
        let other_account = fixture.other_account();
        let theirs = other_account.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        assert_ne!(theirs["id"], first["id"]);
    }

    async fn a_change_of_a_run_is_a_hint(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let hints = async |count: usize| {
            eventually(SOON, async || fixture.peers.hints(fixture.user).len() >= count).await;
            let hints = fixture.peers.hints(fixture.user);
            assert!(hints.iter().all(|(kind, id, _)| (kind.as_str(), id) == ("run", &run["id"].as_str().unwrap().to_owned())));
            assert!(hints.is_sorted_by_key(|(_, _, revision)| *revision), "{hints:?}");
            hints.len()
        };
        let submitted = hints(1).await;
        let runner = fixture.runner();
        runner.complete(&runner.lease_one().await).await;
        let completed = hints(submitted + 1).await;
        fixture.api.delete(&path(&run, "")).await.expect(200);
        hints(completed + 1).await;
    }

    async fn a_key_still_works_after_its_machine_was_deleted(on: Backend) {
        let fixture = Fixture::with(on, &[("ORCHESTRATOR_MACHINE_CACHE_MS", "1")]).await;
        let machine = fixture.peers.new_machine(fixture.user);
        let body = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "machineId": machine }] });
        let first = fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        fixture.peers.remove_machine(fixture.user, &machine);
        let again = fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(200);
        assert_eq!(again["id"], first["id"]);
        fixture.api.post(RUNS, &body).await.problem(404, "MACHINE_NOT_FOUND");
    }

    async fn many_requests_with_one_key_create_one_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = json!({ "tasks": [task("a")] });
        let tries = (0..16).map(|_| fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body));
        let answers = futures_util::future::join_all(tries).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        assert!(answers.iter().all(|answer| answer.status == 201 || answer.status == 200), "{answers:?}");
        assert_eq!(fixture.api.get(RUNS).await.expect(200)["runs"].as_array().unwrap().len(), 1);
    }

    async fn lists_have_pages_and_filters(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut ids = Vec::new();
        for at in 0..7 {
            ids.push(fixture.submit(json!([task(&at.to_string())])).await["id"].clone());
        }
        ids.reverse();
        let mut found: Vec<Value> = Vec::new();
        let mut next = format!("{RUNS}?limit=3");
        loop {
            let page = fixture.api.get(&next).await.expect(200);
            found.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()));
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            next = format!("{RUNS}?limit=3&cursor={cursor}");
        }
        assert_eq!(found, ids);
        let last = json!({ "id": ids[0] });
        fixture.api.post(&path(&last, "/cancel"), &json!({})).await.expect(200);
        let count = async |filter: &str| {
            fixture.api.get(&format!("{RUNS}?status={filter}")).await.expect(200)["runs"].as_array().unwrap().len()
        };
        assert_eq!([count("active").await, count("terminal").await], [6, 1]);
        assert_eq!([count("queued").await, count("cancelled").await, count("failed").await], [6, 1, 0]);
        assert_eq!(fixture.api.get(&format!("{RUNS}?status=odd")).await.bad_fields(), ["?status"]);
        assert_eq!(fixture.api.get(&format!("{RUNS}?limit=0")).await.bad_fields(), ["?limit"]);
        assert_eq!(fixture.api.get(&format!("{RUNS}?limit=101")).await.bad_fields(), ["?limit"]);
        fixture.api.get(&format!("{RUNS}?cursor=nonsense")).await.problem(400, "INVALID_CURSOR");
    }

    async fn only_the_owner_can_use_a_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let output = format!("/tasks/{}/output", run["tasks"][0]["id"].as_str().unwrap());
        let (other_account, runner) = (fixture.other_account(), fixture.runner());
        let anonymous = Api::new(&fixture.service().public_url());
        let calls =
            [("GET", ""), ("POST", "/cancel"), ("POST", "/retry"), ("POST", "/pend"), ("GET", "/pend"), ("GET", "/events"), ("GET", &output)];
        for (method, rest) in calls {
            let path = path(&run, rest);
            Api::send(other_account.request(method, &path)).await.problem(404, "NOT_FOUND");
            Api::send(anonymous.request(method, &path)).await.problem(401, "UNAUTHENTICATED");
            Api::send(runner.api.request(method, &path)).await.problem(403, "FORBIDDEN");
        }
        assert_eq!(other_account.get(RUNS).await.expect(200)["runs"], json!([]));
        anonymous.get(RUNS).await.problem(401, "UNAUTHENTICATED");
        runner.api.post(RUNS, &json!({ "tasks": [task("a")] })).await.problem(403, "FORBIDDEN");
        for id in ["x", "00000000-0000-0000-0000-000000000000"] {
            fixture.api.get(&format!("{RUNS}/{id}")).await.problem(404, "NOT_FOUND");
            fixture.api.get(&format!("{RUNS}/{id}/tasks/{id}/output")).await.problem(404, "NOT_FOUND");
        }
        assert_eq!(fixture.run(&run).await["version"], 1, "no refused request changed the run");
    }

    async fn unfinished_tasks_of_an_account_are_limited(on: Backend) {
        let fixture = Fixture::with(on, &[("ORCHESTRATOR_MAX_UNFINISHED_TASKS", "3")]).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let refused = fixture.api.post(RUNS, &json!({ "tasks": [task("c"), task("d")] })).await;
        refused.problem(429, "RATE_LIMITED");
        assert!(refused.header("retry-after").is_some());
        fixture.submit(json!([task("c")])).await;
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        fixture.submit(json!([task("d"), task("e")])).await;
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.problem(429, "RATE_LIMITED");
        assert_eq!(fixture.other_account().post(RUNS, &json!({ "tasks": [task("a"), task("b"), task("c")] })).await.status, 201);
    }
}
