//! What is sent to a server that was restored, and what is asked of one that was not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ensemble_protocol::transcript::body::{Content, Failure, KnownList, Message};
use ensemble_protocol::transcript::words::ErrorCode;
use serde_json::{Value, json};

use super::super::kept::{Change, local_id};
use super::super::status::{self, Status};
use super::double::Double;
use super::*;

/// At least ten times what is needed.
const LONGEST: Duration = Duration::from_secs(60);

/// A host that sends.
struct Sends {
    double: Double,
    outbox: Outbox,
    delivered: mpsc::Receiver<Delivered>,
    keys: Keys,
    _behind: watch::Sender<Option<Behind>>,
}

impl Sends {
    /// The server has `count` messages of the host, and nothing else.
    async fn new(count: u64) -> Self {
        let double = Double::new().await;
        let mut first = Self::of(double, 0).await;
        first.say(1..=count);
        assert_eq!(first.upto().await, count);
        Self::of(first.double, count).await
    }

    /// The host of `double` begins to send. The server has confirmed this many messages.
    async fn of(double: Double, confirmed: u64) -> Self {
        let (outbox, behind) = (Outbox::default(), watch::Sender::default());
        let (deliveries, delivered) = mpsc::channel(16);
        let newest = Newest { n: confirmed, seq: i64::try_from(confirmed).unwrap(), last: 0 };
        let keys = double.keys(&double.ring).await;
        let of = (double.host.clone(), keys.clone(), double.server.session);
        double.server.requests.send_replace(Vec::new());
        tokio::spawn(run(of, outbox.clone(), (confirmed, newest), behind.subscribe(), deliveries));
        Self { double, outbox, delivered, keys, _behind: behind }
    }

    fn say(&self, counts: impl IntoIterator<Item = u64>) {
        self.outbox.add(counts.into_iter().map(|n| {
            let content = Content::Error(Failure { code: ErrorCode::Unknown, text: "t".into(), retry_at: None });
            let list = KnownList { version: 1, digest: "d".into() };
            let at = self.double.host.now();
            let message = Message { local_id: local_id(n, None), at, list, n: Some(n), content };
            Outgoing { n, local_id: None, body: message.write().unwrap() }
        }));
    }

    async fn next(&mut self) -> Delivered {
        tokio::time::timeout(LONGEST, self.delivered.recv()).await.unwrap().unwrap()
    }

    async fn upto(&mut self) -> u64 {
        match self.next().await {
            Delivered::Upto(n) => n,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_gap_is_found_though_people_have_refilled_its_numbers() {
    let mut sends = Sends::new(3).await;
    sends.double.server.restore(1);
    sends.double.server.fill(5);
    sends.say([4]);
    let delivered = sends.next().await;
    let Delivered::Behind(lacks) = delivered else { panic!("{delivered:?}") };
    assert_eq!((lacks.upto, lacks.last), (3, 5));
    assert!(sends.double.server.requests.borrow().iter().all(|(line, _)| !line.starts_with("post")));
}

#[tokio::test]
async fn a_server_that_is_back_is_looked_at_before_something_new_is_sent() {
    // Each order of the two is possible, so it is tried more than once.
    for round in 0..12 {
        let mut sends = Sends::new(3).await;
        sends.say([4]);
        assert_eq!(sends.upto().await, 4, "it has answered just now");
        sends.double.server.restore(1);
        sends.double.server.fill(6);
        sends.say([5]);
        sends.double.host.wakers.is_back();
        let delivered = sends.next().await;
        assert!(matches!(delivered, Delivered::Behind(Lacks { upto: 4, .. })), "round {round}: {delivered:?}");
    }
}

#[tokio::test]
async fn what_a_start_has_read_is_not_read_again() {
    let mut sends = Sends::new(3).await;
    sends.say([4]);
    assert_eq!(sends.upto().await, 4);
    let asked: Vec<String> = sends.double.server.requests.borrow().iter().map(|(line, _)| line.clone()).collect();
    let of_messages: Vec<&str> =
        asked.iter().filter_map(|line| line.split_once("/messages")).map(|(_, end)| end).collect();
    assert_eq!(of_messages, ["?after=2&limit=1", ""], "{asked:?}");
}

/// The owner's program waits for the receipt of a removal, and then makes the next key.
#[tokio::test]
async fn what_a_machine_says_after_a_removal_is_under_the_next_key() {
    let mut sends = Sends::new(1).await;
    sends.double.give(&sends.double.ring.next().unwrap());
    let receipt = Outgoing { n: 3, local_id: None, body: String::new() };
    sends.keys.note_old(Some(1), &[Change::Say(receipt)]);
    sends.say(2..=4);
    assert_eq!((sends.upto().await, sends.upto().await), (3, 4));
    let requests = sends.double.server.requests.borrow().clone();
    let posted = requests.iter().filter(|(line, _)| line.starts_with("post"));
    let messages =
        posted.flat_map(|(_, body)| body["messages"].as_array().cloned().unwrap_or_else(|| vec![body.clone()]));
    let epochs: Vec<Value> = messages.map(|message| message["keyEpoch"].clone()).collect();
    assert_eq!(epochs, [1, 1, 2]);
}

#[tokio::test]
async fn a_heartbeat_says_why_messages_wait_for_a_new_key() {
    let mut sends = Sends::new(1).await;
    let (_status, status) = watch::channel(Status::default());
    let (host, session) = (sends.double.host.clone(), sends.double.server.session);
    tokio::spawn(status::run(host, sends.keys.clone(), session, status, Arc::default()));
    let mut requests = sends.double.server.requests.subscribe();
    let mut said = async |wanted: Value| {
        let is_newest = |requests: &Vec<(String, Value)>| {
            let newest = requests.iter().rev().find_map(|(_, body)| body.get("heartbeat"));
            newest.is_some_and(|beat| beat["cannotWrite"] == wanted)
        };
        tokio::time::timeout(LONGEST, requests.wait_for(is_newest)).await.unwrap().unwrap();
    };
    said(Value::Null).await;
    sends.double.server.refuses_keys.store(true, Ordering::Relaxed);
    sends.double.remove_a_device().await;
    sends.say([2]);
    said(json!("key_refused")).await;
    sends.double.server.refuses_keys.store(false, Ordering::Relaxed);
    assert_eq!(sends.upto().await, 2);
    said(Value::Null).await;
}
