//! Requests with a few bytes changed: whatever gets through, each request that a service sees is one that its client got an
//! answer to. More would be a smuggled request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::Edge;
use crate::stub::Stub;

/// Longer than any limit of the edges in this test.
const ENOUGH: Duration = Duration::from_secs(2);

const REQUESTS: &[&str] = &[
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
    "GET /v1/machines/m?x=y HTTP/1.1\r\nHost: edge\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
    "GET http://edge/v1/account HTTP/1.1\r\nHost: edge\r\n\r\n",
    "PATCH /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}",
];
/// What hides behind a request whose end is misjudged.
const HIDDEN: &str = "GET /v1/account HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n";
/// Pieces that have broken parsers before.
const PIECES: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "\"",
    "0",
    "5",
    "6",
    "-",
    "+",
    "0x",
    "chunked",
    "\r\n\r\n",
    "\n\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    " HTTP/1.1\r\n",
    "Host: other\r\n",
    "/../",
    "//",
    "%2e%2e",
    "%00",
    "\u{b}",
    "\u{85}",
];

/// The same numbers with each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

fn mutated(numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = REQUESTS[numbers.below(REQUESTS.len())].as_bytes().to_vec();
    for _ in 0..=numbers.below(2) {
        let at = numbers.below(bytes.len());
        match numbers.below(4) {
            0 => {
                bytes.remove(at);
            }
            1 => bytes[at] = PIECES[numbers.below(PIECES.len())].as_bytes()[0],
            _ => {
                bytes.splice(at..at, PIECES[numbers.below(PIECES.len())].bytes());
            }
        }
    }
    bytes.extend_from_slice(HIDDEN.as_bytes());
    bytes
}

async fn round(seed: u64, count: usize, passed: &AtomicUsize) {
    let stub = Stub::echo().await;
    let timeout =
        [("HEAD_DEADLINE_MS", "1000"), ("BODY_TIMEOUT_MS", "60"), ("IDLE_MS", "1000"), ("LIMIT_ADDRESS", "0")];
    let edge = Edge::with(&stub, &timeout).await;
    let mut numbers = Numbers(seed);
    for _ in 0..count {
        let request = mutated(&mut numbers);
        let before = stub.count();
        let mut raw = edge.connect().await;
        raw.send(&request).await;
        // A chunked body without an end keeps its connection open after its answer.
        let mut all = raw.for_at_most(ENOUGH).await;
        let count = |all: &[u8]| all.windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count();
        if count(&all) != stub.count() - before {
            // On a slow machine the answer may still be on its way.
            all.extend(raw.for_at_most(5 * ENOUGH).await);
        }
        let (answered, arrived) = (count(&all), stub.count() - before);
        // What comes after a request can be malformed, and that ends the connection before the request is answered.
        let is_cut = answered + 1 == arrived;
        assert!(
            answered == arrived || is_cut,
            "seed {seed}: {arrived} arrived: {}\n{}",
            request.escape_ascii(),
            all.escape_ascii()
        );
        passed.fetch_add(usize::from(answered > 0), Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_that_arrives_was_answered() {
    const ROUNDS: u64 = 12;
    const EACH: usize = 30;
    let passed = std::sync::Arc::new(AtomicUsize::new(0));
    let rounds: Vec<_> = (1..=ROUNDS)
        .map(|seed| {
            let passed = std::sync::Arc::clone(&passed);
            tokio::spawn(async move { round(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), EACH, &passed).await })
        })
        .collect();
    for round in rounds {
        round.await.unwrap();
    }
    let passed = passed.load(Ordering::SeqCst);
    let all = EACH * usize::try_from(ROUNDS).unwrap();
    assert!(passed > all / 20 && passed < all, "{passed} of {all}: the mutations are neither too mild nor too wild");
}
