//! Notifications: a transaction publishes a topic, and subscribers on every replica wake up.
//!
//! A notification is a hint. The state is in the database, where a subscriber reads it; a notification that is lost costs
//! a little time and never truth. On PostgreSQL they travel by NOTIFY on one connection of each replica, after the commit
//! and never inside it. On SQLite there is one process, and a channel does.
//!
//! The order that misses nothing: subscribe, read the state, wait, read again.

mod postgres;
mod tls;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use crate::reach::Reach;

/// What a subscriber waits for: a kind and an id, as in `session:0198…`. No line breaks; at most 250 bytes.
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
    registry: Arc<Registry>,
    outbox: Option<Arc<Outbox>>,
}

/// Waits for one topic. Notifications that come while no one awaits [`Subscription::changed`] are remembered as one.
pub struct Subscription {
    topic: Topic,
    rx: watch::Receiver<Instant>,
    registry: Arc<Registry>,
}

/// Receives all topics that are published, here and by other replicas.
pub struct Tap(broadcast::Receiver<Published>);

/// What a [`Tap`] receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    Topic(Topic),
    /// Some topics were missed. Which ones is not known.
    Any,
}

/// The subscriptions of this process.
pub(crate) struct Registry {
    /// Each holds when its topic was last delivered here.
    senders: Mutex<HashMap<Topic, watch::Sender<Instant>>>,
    taps: broadcast::Sender<Published>,
    /// Notifications of other replicas arrive.
    pub(crate) connected: AtomicBool,
    /// Is notified when they do.
    pub(crate) connects: Notify,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            senders: Mutex::default(),
            taps: broadcast::Sender::new(TAPPED),
            connected: AtomicBool::default(),
            connects: Notify::new(),
        }
    }
}

/// Topics that have still to be sent to the other replicas.
#[derive(Default)]
pub(crate) struct Outbox {
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Default)]
pub(crate) struct Pending {
    topics: HashSet<Topic>,
    /// There were too many topics to remember, so every subscriber has to wake up.
    all: bool,
}

/// With more topics than this while the connection is lost, every subscriber is woken instead.
const PENDING_LIMIT: usize = 10_000;
/// How long a start waits for the first connection.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);
/// A tap that is further behind than this has missed some.
const TAPPED: usize = 4_096;

impl Notifier {
    pub(crate) fn in_process() -> Self {
        Self { registry: Arc::default(), outbox: None }
    }

    /// `reach` is notified when the server answers again.
    pub(crate) fn over_postgres(url: &str, reach: Arc<Reach>) -> Self {
        let (registry, outbox): (Arc<Registry>, Arc<Outbox>) = (Arc::default(), Arc::default());
        tokio::spawn(postgres::relay(url.to_owned(), Arc::downgrade(&registry), Arc::clone(&outbox), reach));
        Self { registry, outbox: Some(outbox) }
    }

    /// Waits until notifications of other replicas arrive, for a moment: a service works without them. Subscribers that come later are not
    /// woken because of the connection.
    pub(crate) async fn first_connection(&self) {
        let connected = async {
            loop {
                let connects = self.registry.connects.notified();
                if self.is_connected() {
                    return;
                }
                connects.await;
            }
        };
        let _connects_later = tokio::time::timeout(FIRST_CONNECTION, connected).await;
    }

    /// Subscribes to one topic from now on.
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let mut senders = self.registry.lock();
        let rx = senders.entry(topic.clone()).or_insert_with(|| watch::Sender::new(Instant::now())).subscribe();
        drop(senders);
        Subscription { topic, rx, registry: Arc::clone(&self.registry) }
    }

    /// Receives every topic from now on.
    pub fn tap(&self) -> Tap {
        Tap(self.registry.taps.subscribe())
    }

    /// Wakes the subscribers of these topics: here at once, on other replicas in a moment. What was given to
    /// [`crate::Conn::notify`] is published after the commit.
    pub fn publish(&self, topics: impl IntoIterator<Item = Topic>) {
        let topics: Vec<Topic> = topics.into_iter().collect();
        if topics.is_empty() {
            return;
        }
        self.registry.deliver(&topics);
        if let Some(outbox) = &self.outbox {
            outbox.add(topics);
        }
    }

    /// Wakes the subscribers in this process only, and no tap: for a sweep that found what may be a change whose notification was
    /// lost.
    pub fn deliver(&self, topics: &[Topic]) {
        self.registry.wake(topics);
    }

    /// How many topics have subscribers here.
    pub(crate) fn topics(&self) -> usize {
        self.registry.lock().len()
    }

    /// Whether notifications of other replicas arrive. With one process there are none to miss.
    pub(crate) fn is_connected(&self) -> bool {
        self.outbox.is_none() || self.registry.connected.load(Ordering::Relaxed)
    }

    /// The topics of this kind that have subscribers here: a sweep asks the database about these only.
    pub fn subscribed(&self, kind: &str) -> Vec<Topic> {
        self.registry.lock().keys().filter(|topic| topic.kind() == kind).cloned().collect()
    }
}

impl Subscription {
    /// Completes when the topic was published after the last time this completed (or after the subscription was made).
    pub async fn changed(&mut self) {
        if self.rx.changed().await.is_err() {
            // The sender is in the registry, which this subscription keeps alive; without it nothing can come any more.
            std::future::pending::<()>().await;
        }
    }

    /// When the topic was last delivered here, or first subscribed to. All subscribers of one delivery get the same instant, so what
    /// one of them reads at that time or later is new enough for the others.
    pub fn delivered_at(&self) -> Instant {
        *self.rx.borrow()
    }

    pub fn topic(&self) -> &Topic {
        &self.topic
    }
}

impl Tap {
    /// The next topic that was published.
    pub async fn next(&mut self) -> Published {
        match self.0.recv().await {
            Ok(published) => published,
            Err(broadcast::error::RecvError::Lagged(_)) => Published::Any,
            // The database was closed, so nothing can come any more.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut senders = self.registry.lock();
        // The receiver of this subscription is still counted.
        if senders.get(&self.topic).is_some_and(|sender| sender.receiver_count() <= 1) {
            senders.remove(&self.topic);
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, watch::Sender<Instant>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, topics: &[Topic]) {
        let (senders, now) = (self.lock(), Instant::now());
        for sender in topics.iter().filter_map(|topic| senders.get(topic)) {
            sender.send_replace(now);
        }
    }

    pub(crate) fn deliver(&self, topics: &[Topic]) {
        self.wake(topics);
        if self.taps.receiver_count() > 0 {
            // It fails when the last tap has just been dropped.
            topics.iter().for_each(|topic| drop(self.taps.send(Published::Topic(topic.clone()))));
        }
    }

    pub(crate) fn deliver_all(&self) {
        // The time is read under the lock, so that what a topic holds never goes back.
        let (senders, now) = (self.lock(), Instant::now());
        for sender in senders.values() {
            sender.send_replace(now);
        }
        drop(senders);
        let _ = self.taps.send(Published::Any);
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
        self.added.notify_one();
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
            self.added.notified().await;
        }
    }
}
