//! The stream of a run's changes.

use ensemble_testkit::{Events, SOON, SseEvent, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, path, task};

fn data(event: &SseEvent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

on_both_databases! {
    async fn a_stream_shows_every_lasting_state_and_the_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let mut events = Events::open(fixture.api.request("GET", &path(&run, "/events"))).await;
        assert_eq!(events.status, 200);
        let first = events.expect().await;
        assert_eq!((first.name.as_str(), first.id.as_deref()), ("change", Some("1")));
        assert_eq!(data(&first)["changedTasks"][0]["status"], "queued");
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!(data(&events.expect().await)["changedTasks"][0]["status"], "dispatching");
        runner.heartbeat(&lease).await.expect(200);
        assert_eq!(data(&events.expect().await)["changedTasks"][0]["status"], "running");
        runner.complete(&lease).await;
        let last = events.expect().await;
        assert_eq!((&data(&last)["terminal"], last.id.as_deref()), (&json!(true), Some("4")));
        let end = events.expect().await;
        assert_eq!((end.name.as_str(), end.data.as_str()), ("end", r#"{"reason":"terminal"}"#));
        assert_eq!(end.retry, None, "nothing more will come");
        assert_eq!(events.next_within(SOON).await, Ok(None));
    }

    async fn an_event_has_the_beginning_of_a_long_error(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let message = "é".repeat(4_096);
        let report =
            json!({ "fence": lease["fence"], "status": "failed", "error": { "code": "CRASHED", "message": message } });
        let finish = format!("/v1/orchestrator/leases/{}/finish", lease["id"].as_str().unwrap());
        runner.api.post(&finish, &report).await.expect(200);
        let event = Events::open(fixture.api.request("GET", &path(&run, "/events"))).await.expect().await;
        assert_eq!(data(&event)["changedTasks"][0]["error"]["message"], "é".repeat(512));
        assert_eq!(fixture.run(&run).await["tasks"][0]["error"]["message"], message);
    }

    async fn a_reader_that_reconnects_gets_what_changed_meanwhile(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!(vec![task("x"); 700])).await;
        let runner = fixture.runner();
        runner.complete(&runner.lease_one().await).await;
        let request = fixture.api.request("GET", &path(&run, "/events?after=99")).header("Last-Event-ID", "1");
        let event = Events::open(request).await.expect().await;
        assert_eq!((event.id.as_deref(), data(&event)["changedTasks"].as_array().unwrap().len()), (Some("3"), 1));
        let mut all = Events::open(fixture.api.request("GET", &path(&run, "/events"))).await;
        // What does not fit into an event is read from the run.
        let first = data(&all.expect().await);
        assert_eq!((first["changedTasks"].as_array().unwrap().len(), &first["more"]), (500, &json!(true)));
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        // A large change comes in batches. Two of them can be in one event, which then does not have all of their tasks.
        let (mut cancelled, mut has_all) = (0, true);
        let last = loop {
            let event = all.expect().await;
            let change = data(&event);
            cancelled += change["changedTasks"].as_array().unwrap().len();
            has_all &= change["more"] == json!(null);
            if change["terminal"] == true {
                break event.id.unwrap();
            }
        };
        assert!(cancelled == 699 || !has_all, "{cancelled} tasks were in events");
        // A client that knows the end of a finished run does not come back.
        let stream = path(&run, "/events");
        for request in [
            fixture.api.request("GET", &format!("{stream}?after={last}")),
            fixture.api.request("GET", &stream).header("Last-Event-ID", &last),
        ] {
            assert_eq!(Events::open(request).await.status, 204);
        }
        let empty = fixture.api.request("GET", &format!("{stream}?after={last}")).header("Last-Event-ID", "");
        assert_eq!(Events::open(empty).await.status, 204, "an empty id is as absent");
        let bad = ensemble_testkit::Api::send(fixture.api.request("GET", &path(&run, "/events?after=x"))).await;
        bad.problem(400, "INVALID_CURSOR");
    }
}
