//! The output of attempts, and how it is read.

use ensemble_testkit::{Answer, Api, SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NO_SWEEP, path, task};

fn output_of(run: &Value, task: usize) -> String {
    path(run, &format!("/tasks/{}/output", run["tasks"][task]["id"].as_str().unwrap()))
}

async fn part(fixture: &Fixture, path: &str, range: &str) -> Answer {
    Api::send(fixture.api.request("GET", path).header("Range", range)).await
}

on_both_databases! {
    async fn pieces_are_joined_by_their_offsets(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let path = output_of(&run, 0);
        let empty = fixture.api.get(&path).await;
        assert_eq!((empty.status, empty.text.as_str()), (200, ""));
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!(runner.output(&lease, 0, "a🦀").await.expect(200), json!({ "nextOffset": 5, "truncated": false }));
        assert_eq!(runner.output(&lease, 0, "a🦀").await.expect(200)["nextOffset"], 5, "a repetition");
        assert_eq!(runner.output(&lease, 1, "🦀bc").await.expect(200)["nextOffset"], 7, "an overlap");
        let gap = runner.output(&lease, 9, "x").await.problem(409, "CONFLICT");
        assert_eq!(gap["expectedOffset"], 7);
        assert_eq!(runner.output(&lease, 7, "").await.expect(200)["nextOffset"], 7);
        let whole = fixture.api.get(&path).await;
        assert_eq!(whole.text, "a🦀bc");
        assert_eq!(whole.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(whole.header("content-length"), Some("7"));
    }

    async fn ranges_are_honoured(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let path = output_of(&run, 0);
        part(&fixture, &path, "bytes=0-").await.problem(416, "RANGE_NOT_SATISFIABLE");
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for (offset, piece) in [(0, "0123"), (4, "4567"), (8, "89")] {
            runner.output(&lease, offset, piece).await.expect(200);
        }
        for (range, text, content_range) in [
            ("bytes=0-3", "0123", "bytes 0-3/10"),
            ("bytes=3-5", "345", "bytes 3-5/10"),
            ("bytes=9-", "9", "bytes 9-9/10"),
            ("bytes=-2", "89", "bytes 8-9/10"),
            ("bytes=2-99", "23456789", "bytes 2-9/10"),
        ] {
            let answer = part(&fixture, &path, range).await;
            assert_eq!((answer.status, answer.text.as_str(), answer.header("content-range")), (206, text, Some(content_range)), "{range}");
        }
        for range in ["lines=1-2", "bytes=0-1,3-4"] {
            let answer = part(&fixture, &path, range).await;
            assert_eq!((answer.status, answer.text.as_str()), (200, "0123456789"), "{range} is ignored");
        }
        part(&fixture, &path, "bytes=10-").await.problem(416, "RANGE_NOT_SATISFIABLE");
    }

    async fn output_is_stored_up_to_the_limit_and_counted_beyond_it(on: Backend) {
        let fixture = Fixture::with(on, &[("ORCHESTRATOR_OUTPUT_CAP_BYTES", "10")]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!(runner.output(&lease, 0, "12345678").await.expect(200)["truncated"], false);
        assert_eq!(runner.output(&lease, 8, "9🦀").await.expect(200), json!({ "nextOffset": 13, "truncated": true }));
        assert_eq!(runner.output(&lease, 13, "more").await.expect(200), json!({ "nextOffset": 17, "truncated": true }));
        let text = fixture.api.get(&output_of(&run, 0)).await.text;
        assert_eq!(text, "123456789\n[output truncated after 10 bytes]\n");
    }

    async fn large_outputs_are_read_whole(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let piece = "0123456789abcdef".repeat(32_768);
        for at in 0..6 {
            runner.output(&lease, at * piece.len(), &piece).await.expect(200);
        }
        let path = output_of(&run, 0);
        assert!(fixture.api.get(&path).await.text == piece.repeat(6));
        let middle = part(&fixture, &path, "bytes=524280-524303").await;
        assert_eq!(middle.text, "89abcdef0123456789abcdef");
    }

    async fn each_attempt_has_its_own_output(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "retry": { "maxAttempts": 2, "backoffMs": 0 } }])).await;
        let runner = fixture.runner();
        for text in ["first", "second"] {
            let lease = runner.lease_one().await;
            runner.output(&lease, 0, text).await.expect(200);
            runner.finish(&lease, "failed").await.expect(200);
        }
        let path = output_of(&run, 0);
        assert_eq!(fixture.api.get(&path).await.text, "second");
        assert_eq!(fixture.api.get(&format!("{path}?attempt=1")).await.text, "first");
        fixture.api.get(&format!("{path}?attempt=3")).await.problem(404, "NOT_FOUND");
        assert_eq!(fixture.api.get(&format!("{path}?attempt=x")).await.bad_fields(), ["?attempt"]);
    }

    async fn a_follower_gets_live_output_from_before_the_first_attempt_to_the_end(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let run = fixture.submit(json!([task("a")])).await;
        let path = format!("{}?follow=true", output_of(&run, 0));
        let whole = tokio::spawn({ let (api, path) = (fixture.api.clone(), path.clone()); async move { api.get(&path).await } });
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.output(&lease, 0, "one ").await.expect(200);
        let mut live = fixture.api.request("GET", &path).header("Range", "bytes=4-").send().await.unwrap();
        assert_eq!(live.status(), 206);
        for (offset, piece) in [(4, "two "), (8, "three")] {
            runner.output(&lease, offset, piece).await.expect(200);
            let chunk = tokio::time::timeout(SOON, live.chunk()).await.expect("without a sweep").unwrap();
            assert_eq!(chunk.unwrap(), piece.as_bytes());
        }
        runner.complete(&lease).await;
        let end = tokio::time::timeout(SOON, live.chunk()).await.expect("without a sweep").unwrap();
        assert_eq!(end, None);
        let whole = whole.await.unwrap();
        assert_eq!((whole.status, whole.text.as_str()), (200, "one two three"));
        assert_eq!(fixture.api.get(&path).await.text, "one two three");
    }

    async fn a_drain_ends_followers_after_the_stored_output(on: Backend) {
        let mut fixture = Fixture::with(on, &[("DRAIN_GRACE_MS", "600000")]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let path = format!("{}?follow=true", output_of(&run, 0));
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.output(&lease, 0, "half a li").await.expect(200);
        let mut live = fixture.api.request("GET", &path).send().await.unwrap();
        assert_eq!(live.chunk().await.unwrap().unwrap(), "half a li");
        let running = fixture.running.take().unwrap();
        let stopping = tokio::spawn(running.stop());
        let end = tokio::time::timeout(SOON, live.chunk()).await.expect("before the grace is over");
        assert_eq!(end.expect("no broken connection"), None);
        assert!(stopping.await.unwrap(), "no connection was aborted");
    }

    async fn following_a_task_that_never_runs_ends_with_the_task(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let path = format!("{}?follow=true", output_of(&run, 0));
        let following = tokio::spawn({ let api = fixture.api.clone(); async move { api.get(&path).await } });
        fixture.api.post(&crate::fixture::path(&run, "/cancel"), &json!({})).await.expect(200);
        eventually(SOON, async || following.is_finished()).await;
        assert_eq!(following.await.unwrap().text, "");
    }
}
