//! Hints of accounts among the notifications: a transaction gives one, and after the commit it goes wherever hints are collected.

use std::collections::HashMap;
use std::time::Duration;

use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::ids::UserId;
use tokio::time::{Instant, sleep_until};

use crate::{Published, Tap, Topic};

/// The kind of topics that hold a hint themselves.
const TOPICS: &str = "hint";
/// How long a hint waits for others, so that they are sent together.
const GATHER: Duration = Duration::from_millis(20);
/// The most hints that are sent together.
const MOST: usize = 1_000;

/// What [`crate::Conn::notify`] takes for a hint.
pub fn topic(hint: &AccountHint) -> Topic {
    Topic::new(TOPICS, hint)
}

/// The hint that a topic holds.
pub fn read(topic: &Topic) -> Option<AccountHint> {
    (topic.kind() == TOPICS).then(|| topic.id().parse().ok()).flatten()
}

/// Sends each hint that was published, the newest for each id, until `closing` completes. Hints that come while `send` takes too
/// long may be lost.
pub async fn forward<S, F>(mut tap: Tap, closing: impl Future<Output = ()>, send: S)
where
    S: Fn(Vec<AccountHint>) -> F,
    F: Future<Output = ()>,
{
    let mut closing = std::pin::pin!(closing);
    let mut waiting: HashMap<(UserId, HintKind, String), AccountHint> = HashMap::new();
    let mut due: Option<Instant> = None;
    loop {
        let is_due = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut closing => return,
            () = is_due => {
                due = None;
                send(waiting.drain().map(|(_, hint)| hint).collect()).await;
            }
            published = tap.next(), if waiting.len() < MOST => {
                let Published::Topic(topic) = published else { continue };
                let Some(hint) = read(&topic) else { continue };
                due.get_or_insert_with(|| Instant::now() + GATHER);
                let newest = waiting.entry((hint.user, hint.kind, hint.id.clone())).or_insert_with(|| hint.clone());
                newest.revision = newest.revision.max(hint.revision);
            }
        }
    }
}
