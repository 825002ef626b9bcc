//! The Prometheus metrics of every service, and the limited set of their labels.

use ensemble_doubles::livekit::Double;

use crate::stack::{SERVICES, Stack};

/// The metrics of every service.
const EVERYWHERE: &[&str] = &[
    "ensemble_build_info",
    "ensemble_http_requests_in_flight",
    "ensemble_process_resident_memory_bytes",
    "ensemble_process_cpu_seconds_total",
    "ensemble_process_open_fds",
    "ensemble_process_start_time_seconds",
    "ensemble_spans_sent_total",
];
const WITH_DATABASE: &[&str] = &[
    "ensemble_db_operation_duration_seconds_count",
    "ensemble_db_pool_connections",
    "ensemble_db_pool_limit",
    "ensemble_db_pool_waiting",
    "ensemble_db_pool_wait_seconds_count",
    "ensemble_wake_connected",
];

#[tokio::test]
async fn every_service_exports_the_common_metrics_and_labels_have_no_ids() {
    let livekit = Double::start().expect("a free port");
    let stack = Stack::start("http://127.0.0.1:9", &livekit, &[]).await;
    let user = stack.user().await;
    let canary = "0198c0de-0000-7000-8000-00000000beef";
    for path in [format!("/v1/sessions/{canary}"), format!("/v1/public-sessions/{canary}"), format!("/v1/{canary}/x")] {
        user.api.get(&path).await;
    }
    let unknown = user.api.request("BREW", &format!("/v1/sessions/{canary}"));
    ensemble_testkit::Api::send(unknown).await;
    for service in SERVICES {
        let metrics = stack.inside(service).get("/metrics").await.text;
        let with_database = if service == "edge-proxy" { &[] } else { WITH_DATABASE };
        for name in EVERYWHERE.iter().chain(with_database) {
            assert!(metrics.lines().any(|line| line.starts_with(name)), "{service} does not export {name}");
        }
        assert!(!metrics.contains(canary), "an id is a label of {service}");
        assert!(!metrics.contains("BREW"), "a caller's method is a label of {service}");
        assert!(!metrics.contains(&user.id), "an account is a label of {service}");
    }
}
