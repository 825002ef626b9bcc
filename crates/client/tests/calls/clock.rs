//! The time that is signed, on a computer whose clock is wrong.

use std::sync::Arc;

use ensemble_client::{Client, Clock};
use ensemble_types::problem::Code;
use ensemble_types::time::Timestamp;

use crate::scripted::{Reply, Server, problem_body, quick};

const NOON: i64 = 1_774_526_400;

fn ten_minutes_early() -> Timestamp {
    Timestamp::from_unix_seconds(NOON + 600)
}

#[tokio::test]
async fn a_client_whose_clock_is_ten_minutes_off_knows_the_servers_time() {
    let date = ("date", "Thu, 26 Mar 2026 12:00:00 GMT");
    let server =
        Server::start(move |_, _| Reply::With(404, "application/problem+json", date, problem_body(404, "NOT_FOUND")))
            .await;
    let clock = Arc::new(Clock::new(ten_minutes_early));
    let client = Client::builder(&server.url).retry(quick()).clock(clock.clone()).build().unwrap();
    assert_eq!((client.clock().now(), client.clock().ahead()), (ten_minutes_early(), 0), "nothing is measured yet");
    // A refusal has a date, too.
    assert!(client.machine(&"m".parse().unwrap()).await.unwrap_err().is(Code::NotFound));
    assert_eq!((clock.now(), clock.ahead()), (Timestamp::from_unix_seconds(NOON), 600));
}
