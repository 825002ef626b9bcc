//! `pend`: waiting for a change or for the end of a run.

use std::time::{Duration, Instant};

use ensemble_testkit::{Api, SOON, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, NO_SWEEP, path, task};

on_both_databases! {
    async fn a_change_is_returned_with_the_tasks_that_changed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let pend = path(&run, "/pend");
        let first = fixture.api.post(&pend, &json!({ "cursor": "0" })).await.expect(200);
        assert_eq!((&first["changed"], &first["terminal"], &first["cursor"]), (&json!(true), &json!(false), &json!("1")));
        assert_eq!(first["changedTasks"].as_array().unwrap().len(), 2);
        assert!(first["run"].get("tasks").is_none());
        let began = Instant::now();
        let nothing = fixture.api.post(&pend, &json!({ "cursor": "1", "timeoutMs": 200 })).await.expect(200);
        assert!(began.elapsed() >= Duration::from_millis(200));
        assert_eq!((&nothing["changed"], &nothing["changedTasks"]), (&json!(false), &json!([])));
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let change = fixture.api.post(&pend, &json!({ "cursor": "1" })).await.expect(200);
        assert_eq!(change["changedTasks"], json!([{ "id": lease["taskId"], "ref": first["changedTasks"][0]["ref"], "status": "dispatching", "attempt": 1,
            "waitingFor": null, "waitingReason": null, "machineId": runner.id, "error": null }]));
        assert_eq!(change["status"], "running");
    }

    async fn a_waiting_request_is_notified_without_a_sweep(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let (api, pend) = (fixture.api.clone(), path(&run, "/pend"));
        let change = tokio::spawn({
            let (api, pend) = (api.clone(), pend.clone());
            async move { api.post(&pend, &json!({ "cursor": "2", "timeoutMs": 100_000 })).await.expect(200) }
        });
        let end = tokio::spawn(async move {
            api.post(&pend, &json!({ "waitFor": "terminal", "cursor": "2", "timeoutMs": 100_000 })).await.expect(200)
        });
        fixture.wait_for_requests(2).await;
        runner.complete(&lease).await;
        for task in [change, end] {
            let pended = task.await.unwrap();
            assert_eq!((&pended["changed"], &pended["terminal"]), (&json!(true), &json!(true)));
        }
    }

    async fn a_run_that_has_ended_is_returned_at_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let pend = path(&run, "/pend");
        let zero = fixture.api.post(&pend, &json!({ "waitFor": "terminal", "timeoutMs": 0 })).await.expect(200);
        assert_eq!((&zero["terminal"], &zero["changed"]), (&json!(false), &json!(false)));
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        for (method, query) in [("POST", ""), ("GET", "&waitFor=terminal"), ("GET", "&cursor=1"), ("POST", "&cursor=99")] {
            let call = fixture.api.request(method, &format!("{pend}?timeoutMs=110000{query}"));
            let began = Instant::now();
            let ended = Api::send(call).await.expect(200);
            assert_eq!((&ended["terminal"], &ended["status"]), (&json!(true), &json!("cancelled")));
            assert!(began.elapsed() < SOON);
        }
    }

    async fn invalid_waits_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let pend = path(&run, "/pend");
        fixture.api.post(&pend, &json!({ "cursor": "x" })).await.problem(400, "INVALID_CURSOR");
        fixture.api.post(&format!("{pend}?cursor="), &json!({ "cursor": "1" })).await.problem(400, "INVALID_CURSOR");
        fixture.api.post(&pend, &json!({ "cursor": "-1" })).await.problem(400, "INVALID_CURSOR");
        fixture.api.post(&pend, &json!({ "cursor": "99999999999999999999" })).await.problem(400, "INVALID_CURSOR");
        assert_eq!(fixture.api.post(&pend, &json!({ "timeoutMs": 120_001 })).await.bad_fields(), ["/timeoutMs"]);
        assert_eq!(fixture.api.post(&pend, &json!({ "waitFor": "ever" })).await.bad_fields(), ["/waitFor"]);
        assert_eq!(fixture.api.get(&format!("{pend}?waitFor=ever")).await.bad_fields(), ["?waitFor"]);
    }

    async fn at_most_five_hundred_tasks_are_returned(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!(vec![task("x"); 501])).await;
        let pended = fixture.api.post(&path(&run, "/pend"), &json!({ "cursor": "0" })).await.expect(200);
        assert_eq!((pended["changedTasks"].as_array().unwrap().len(), &pended["more"]), (500, &json!(true)));
    }

    async fn a_revoked_token_ends_the_wait(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let (token, id) = fixture.peers.issuer().revocable(fixture.user);
        let api = fixture.api.with_token(&token);
        let pend = path(&run, "/pend");
        let waiting = tokio::spawn(async move { api.post(&pend, &json!({ "timeoutMs": 50_000 })).await });
        fixture.wait_for_requests(1).await;
        fixture.peers.issuer().revoke(id);
        waiting.await.unwrap().problem(401, "UNAUTHENTICATED");
    }
}
