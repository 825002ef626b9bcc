//! The numbers for Prometheus: they are there, and their labels are bounded.

use ensemble_livekit_double::Double;
use ensemble_telemetry::{City, SERVICES};

/// What every service writes.
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

#[actix_web::test]
async fn every_service_writes_what_the_dashboards_ask_for_and_no_path_or_id_becomes_a_label() {
    let livekit = Double::start().expect("a free port");
    let city = City::start("http://127.0.0.1:9", &livekit, &[]).await;
    let ann = city.person().await;
    let canary = "0198c0de-0000-7000-8000-00000000beef";
    for path in [format!("/v1/sessions/{canary}"), format!("/v1/public-sessions/{canary}"), format!("/v1/{canary}/x")] {
        ann.api.get(&path).await;
    }
    let strange = ann.api.request("BREW", &format!("/v1/sessions/{canary}"));
    ensemble_testkit::Api::send(strange).await;
    for service in SERVICES {
        let metrics = city.inside(service).get("/metrics").await.text;
        let with_database = if service == "edge-proxy" { &[] } else { WITH_DATABASE };
        for name in EVERYWHERE.iter().chain(with_database) {
            assert!(metrics.lines().any(|line| line.starts_with(name)), "{service} does not write {name}");
        }
        assert!(!metrics.contains(canary), "an id is a label of {service}");
        assert!(!metrics.contains("BREW"), "a caller's method is a label of {service}");
        assert!(!metrics.contains(&ann.id), "an account is a label of {service}");
    }
}
