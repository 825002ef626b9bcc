//! A collector that is away, or takes nothing, slows nobody and stops nobody.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ensemble_livekit_double::Double;
use ensemble_telemetry::City;
use ensemble_testkit::eventually;

/// How long an exporter tries to send; whoever waited for it would wait as long.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// A queue that is full at once, so that what is dropped is dropped in the first moments.
const TINY_QUEUE: &[(&str, &str)] =
    &[("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"), ("LIMIT_ADDRESS", "0")];

async fn nobody_notices(collector: &str) {
    let livekit = Double::start().expect("a free port");
    let city = City::start(collector, &livekit, TINY_QUEUE).await;
    let ann = city.person().await;
    let mut slowest = Duration::ZERO;
    for _ in 0..300 {
        let began = Instant::now();
        let answer = ann.api.get("/v1/account").await;
        slowest = slowest.max(began.elapsed());
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert!(slowest < EXPORT_TIMEOUT, "a request waited for the collector: {slowest:?}");
    // The dashboards notice.
    eventually(Duration::from_secs(20), async || {
        let metrics = city.inside("identity").get("/metrics").await.text;
        let lost =
            metrics.lines().find_map(|line| line.strip_prefix("ensemble_spans_lost_total{service=\"identity\"} "));
        lost.and_then(|lost| lost.parse::<f64>().ok()).is_some_and(|lost| lost > 0.0)
    })
    .await;
}

#[actix_web::test]
async fn a_collector_that_is_not_there_slows_nobody() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port");
    nobody_notices(&format!("http://{closed}")).await;
}

#[actix_web::test]
async fn a_collector_that_takes_everything_and_answers_nothing_slows_nobody() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = silent.local_addr().expect("an address");
    nobody_notices(&format!("http://{address}")).await;
    drop(silent);
}
