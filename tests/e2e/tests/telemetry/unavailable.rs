//! An unavailable collector delays no request.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ensemble_doubles::livekit::Double;
use ensemble_testkit::SOON;
use ensemble_testkit::eventually;

use crate::stack::Stack;

/// The timeout of an export. A request that waited for it would take as long.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// A very small queue, so that spans are dropped from the beginning.
const TINY_QUEUE: &[(&str, &str)] =
    &[("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"), ("LIMIT_ADDRESS", "0")];

async fn requests_do_not_wait_for(collector: &str) {
    let livekit = Double::start().expect("a free port");
    let stack = Stack::start(collector, &livekit, TINY_QUEUE).await;
    let user = stack.user().await;
    let mut slow = 0;
    for _ in 0..300 {
        let began = Instant::now();
        let answer = user.api.get("/v1/account").await;
        slow += u32::from(began.elapsed() >= EXPORT_TIMEOUT);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    // The machine may stand still now and then. Requests that waited for the queue would be slow all the time.
    assert!(slow < 10, "{slow} requests waited for the collector");
    // The metrics show the lost spans.
    eventually(SOON, async || {
        let metrics = stack.inside("identity").get("/metrics").await.text;
        let lost =
            metrics.lines().find_map(|line| line.strip_prefix("ensemble_spans_lost_total{service=\"identity\"} "));
        lost.and_then(|lost| lost.parse::<f64>().ok()).is_some_and(|lost| lost > 0.0)
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_collector_delays_no_request() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port");
    requests_do_not_wait_for(&format!("http://{closed}")).await;
}

#[tokio::test]
async fn a_hanging_collector_delays_no_request() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = silent.local_addr().expect("an address");
    requests_do_not_wait_for(&format!("http://{address}")).await;
    drop(silent);
}
