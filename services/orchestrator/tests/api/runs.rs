//! Submitting, listing, reading; who may.

use ensemble_testkit::{Api, on_both_databases};
use serde_json::{Value, json};

use crate::world::{RUNS, World, path, task};

on_both_databases! {
    async fn a_key_makes_one_run(on: Backend) {
        let world = World::new(on).await;
        let body = json!({ "tasks": [task("a")], "title": "Once" });
        let first = world.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        let runner = world.runner();
        runner.complete(&runner.one().await).await;
        let again = world.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(200);
        assert_eq!((&again["id"], &again["status"]), (&first["id"], &json!("completed")));
        let other = json!({ "tasks": [task("b")] });
        world.api.post_keyed(RUNS, "key-0123456789abcdef", &other).await.problem(409, "IDEMPOTENCY_MISMATCH");
        world.api.post_keyed(RUNS, "short", &body).await.problem(400, "INVALID_ARGUMENT");
        let stranger = world.stranger();
        let theirs = stranger.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        assert_ne!(theirs["id"], first["id"]);
    }

    async fn a_key_is_honoured_after_its_machine_has_gone(on: Backend) {
        let world = World::with(on, &[("ORCHESTRATOR_MACHINE_CACHE_MS", "1")]).await;
        let machine = world.peers.new_machine(world.user);
        let body = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "machineId": machine }] });
        let first = world.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(201);
        world.peers.remove_machine(world.user, &machine);
        let again = world.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(200);
        assert_eq!(again["id"], first["id"]);
        world.api.post(RUNS, &body).await.problem(404, "MACHINE_NOT_FOUND");
    }

    async fn many_with_one_key_make_one(on: Backend) {
        let world = World::new(on).await;
        let body = json!({ "tasks": [task("a")] });
        let tries = (0..16).map(|_| world.api.post_keyed(RUNS, "key-0123456789abcdef", &body));
        let answers = futures_util::future::join_all(tries).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        assert!(answers.iter().all(|answer| answer.status == 201 || answer.status == 200), "{answers:?}");
        assert_eq!(world.api.get(RUNS).await.expect(200)["runs"].as_array().unwrap().len(), 1);
    }

    async fn lists_go_back_page_by_page_and_by_state(on: Backend) {
        let world = World::new(on).await;
        let mut ids = Vec::new();
        for at in 0..7 {
            ids.push(world.submit(json!([task(&at.to_string())])).await["id"].clone());
        }
        ids.reverse();
        let mut found: Vec<Value> = Vec::new();
        let mut next = format!("{RUNS}?limit=3");
        loop {
            let page = world.api.get(&next).await.expect(200);
            found.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()));
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            next = format!("{RUNS}?limit=3&cursor={cursor}");
        }
        assert_eq!(found, ids);
        let last = json!({ "id": ids[0] });
        world.api.post(&path(&last, "/cancel"), &json!({})).await.expect(200);
        let count = async |filter: &str| {
            world.api.get(&format!("{RUNS}?status={filter}")).await.expect(200)["runs"].as_array().unwrap().len()
        };
        assert_eq!([count("active").await, count("terminal").await], [6, 1]);
        assert_eq!([count("queued").await, count("cancelled").await, count("failed").await], [6, 1, 0]);
        assert_eq!(world.api.get(&format!("{RUNS}?status=odd")).await.bad_fields(), ["?status"]);
        assert_eq!(world.api.get(&format!("{RUNS}?limit=0")).await.bad_fields(), ["?limit"]);
        assert_eq!(world.api.get(&format!("{RUNS}?limit=101")).await.bad_fields(), ["?limit"]);
        world.api.get(&format!("{RUNS}?cursor=nonsense")).await.problem(400, "INVALID_CURSOR");
    }

    async fn a_run_is_its_owners_only(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a")])).await;
        let output = format!("/tasks/{}/output", run["tasks"][0]["id"].as_str().unwrap());
        let (stranger, runner) = (world.stranger(), world.runner());
        let nobody = Api::new(&world.service().public_url());
        let calls =
            [("GET", ""), ("POST", "/cancel"), ("POST", "/retry"), ("POST", "/pend"), ("GET", "/pend"), ("GET", "/events"), ("GET", &output)];
        for (method, rest) in calls {
            let path = path(&run, rest);
            Api::send(stranger.request(method, &path)).await.problem(404, "NOT_FOUND");
            Api::send(nobody.request(method, &path)).await.problem(401, "UNAUTHENTICATED");
            Api::send(runner.api.request(method, &path)).await.problem(403, "FORBIDDEN");
        }
        assert_eq!(stranger.get(RUNS).await.expect(200)["runs"], json!([]));
        nobody.get(RUNS).await.problem(401, "UNAUTHENTICATED");
        runner.api.post(RUNS, &json!({ "tasks": [task("a")] })).await.problem(403, "FORBIDDEN");
        for id in ["x", "00000000-0000-0000-0000-000000000000"] {
            world.api.get(&format!("{RUNS}/{id}")).await.problem(404, "NOT_FOUND");
            world.api.get(&format!("{RUNS}/{id}/tasks/{id}/output")).await.problem(404, "NOT_FOUND");
        }
        assert_eq!(world.run(&run).await["version"], 1, "nothing of this changed anything");
    }

    async fn an_account_has_only_so_many_unfinished_tasks(on: Backend) {
        let world = World::with(on, &[("ORCHESTRATOR_MAX_UNFINISHED_TASKS", "3")]).await;
        let run = world.submit(json!([task("a"), task("b")])).await;
        let refused = world.api.post(RUNS, &json!({ "tasks": [task("c"), task("d")] })).await;
        refused.problem(429, "RATE_LIMITED");
        assert!(refused.header("retry-after").is_some());
        world.submit(json!([task("c")])).await;
        world.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        world.submit(json!([task("d"), task("e")])).await;
        world.api.post(&path(&run, "/retry"), &json!({})).await.problem(429, "RATE_LIMITED");
        assert_eq!(world.stranger().post(RUNS, &json!({ "tasks": [task("a"), task("b"), task("c")] })).await.status, 201);
    }
}
