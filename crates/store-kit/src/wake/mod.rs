//! Wake-ups: telling those who wait that something changed, on whichever replica they wait.
//!
//! A wake-up is a hint. The state is in the database, and who is woken reads it there; a wake-up that is lost costs a
//! little time and never truth. On PostgreSQL they travel by NOTIFY on one connection of each replica, after the commit
//! and never inside it; on SQLite there is one process, and a channel does.
//!
//! The order that misses nothing: subscribe, read the state, wait, read again.

mod postgres;
mod tls;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

/// What one waits for: a kind and an id, as in `session:0198…`. No line breaks; at most 250 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    pub fn new(kind: &str, id: impl fmt::Display) -> Self {
        Self(format!("{kind}:{id}").into())
    }

    pub fn kind(&self) -> &str {
        self.0.split_once(':').map_or("", |(kind, _)| kind)
    }

    /// The id, as [`Topic::new`] was given it.
    pub fn id(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, id)| id)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Publishes and subscribes. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    hub: Arc<Hub>,
    outbox: Option<Arc<Outbox>>,
}

/// One who waits. Wake-ups that come while nobody is in [`Subscription::changed`] are kept, as one.
pub struct Subscription {
    topic: Topic,
    news: watch::Receiver<()>,
    hub: Arc<Hub>,
}

#[derive(Default)]
pub(crate) struct Hub {
    waiting: Mutex<HashMap<Topic, watch::Sender<()>>>,
    /// Wake-ups of other replicas arrive.
    pub(crate) connected: AtomicBool,
}

/// What is still to be told to the other replicas.
#[derive(Default)]
pub(crate) struct Outbox {
    pending: Mutex<Pending>,
    filled: Notify,
}

#[derive(Default)]
pub(crate) struct Pending {
    topics: HashSet<Topic>,
    /// There was more than anybody should remember: everybody must look.
    all: bool,
}

/// More than this while the connection is away, and everybody is woken instead.
const PENDING_LIMIT: usize = 10_000;

impl Notifier {
    pub(crate) fn in_process() -> Self {
        Self { hub: Arc::default(), outbox: None }
    }

    pub(crate) fn over_postgres(url: &str) -> Self {
        let (hub, outbox): (Arc<Hub>, Arc<Outbox>) = (Arc::default(), Arc::default());
        tokio::spawn(postgres::relay(url.to_owned(), Arc::downgrade(&hub), Arc::clone(&outbox)));
        Self { hub, outbox: Some(outbox) }
    }

    /// Waits for one topic from now on.
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let news = self.hub.lock().entry(topic.clone()).or_default().subscribe();
        Subscription { topic, news, hub: Arc::clone(&self.hub) }
    }

    /// Notifier whoever waits for these: here at once, elsewhere in a moment. [`crate::Conn::notify`] calls it after a commit.
    pub fn publish(&self, topics: impl IntoIterator<Item = Topic>) {
        let topics: Vec<Topic> = topics.into_iter().collect();
        if topics.is_empty() {
            return;
        }
        self.hub.deliver(&topics);
        if let Some(outbox) = &self.outbox {
            outbox.add(topics);
        }
    }

    /// Notifier only those who wait in this process; for a sweep that found what a lost wake-up would have told.
    pub fn deliver(&self, topics: &[Topic]) {
        self.hub.deliver(topics);
    }

    /// How many things are waited for here.
    pub(crate) fn topics(&self) -> usize {
        self.hub.lock().len()
    }

    /// Whether wake-ups of other replicas arrive; in one process there are none to miss.
    pub(crate) fn is_connected(&self) -> bool {
        self.outbox.is_none() || self.hub.connected.load(Ordering::Relaxed)
    }

    /// Everything of this kind that is waited for here; for sweeps, which ask the database about these only.
    pub fn subscribed(&self, kind: &str) -> Vec<Topic> {
        self.hub.lock().keys().filter(|topic| topic.kind() == kind).cloned().collect()
    }
}

impl Subscription {
    /// Completes when the topic was published after the last time this completed (or after the subscription was made).
    pub async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            // The sender lives in the hub, which we hold; without it nothing can come any more.
            std::future::pending::<()>().await;
        }
    }

    pub fn topic(&self) -> &Topic {
        &self.topic
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut waiting = self.hub.lock();
        // Our own receiver is still counted.
        if waiting.get(&self.topic).is_some_and(|sender| sender.receiver_count() <= 1) {
            waiting.remove(&self.topic);
        }
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, watch::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn deliver(&self, topics: &[Topic]) {
        let waiting = self.lock();
        for sender in topics.iter().filter_map(|topic| waiting.get(topic)) {
            sender.send_replace(());
        }
    }

    pub(crate) fn deliver_all(&self) {
        for sender in self.lock().values() {
            sender.send_replace(());
        }
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, topics: Vec<Topic>) {
        let mut pending = self.lock();
        pending.topics.extend(topics);
        if pending.topics.len() > PENDING_LIMIT {
            *pending = Pending { topics: HashSet::new(), all: true };
        }
        drop(pending);
        self.filled.notify_one();
    }

    fn put_back(&self, unsent: Pending) {
        let mut pending = self.lock();
        pending.all |= unsent.all;
        pending.topics.extend(unsent.topics);
    }

    pub(crate) async fn take(&self) -> Pending {
        loop {
            let pending = std::mem::take(&mut *self.lock());
            if pending.all || !pending.topics.is_empty() {
                return pending;
            }
            self.filled.notified().await;
        }
    }
}
