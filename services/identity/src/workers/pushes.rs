//! Sends notifications as they become due: several at once, so that a slow push service does not delay the others, and few of one
//! account, so that an account with many does not delay the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use ensemble_chassis::{Clock, Drain};
use ensemble_store_kit::deliveries::{Deliveries, Due, send_all};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::UserId;
use reqwest::Url;

use crate::clients::{Notification, PushServices, Sent};
use crate::metrics::IdentityMetrics;
use crate::operations::pushes::{self, Outcome};
use crate::store::pushes::{Delivery, topic};

/// The most notifications that are sent at once.
const MOST: usize = 8;
/// The most of them to one push service.
const MOST_TO_ONE: usize = 4;
/// The most of them of one account.
const MOST_OF_ONE: usize = 2;
/// How long a notification waits when there is no room for it.
const NO_ROOM: Duration = Duration::from_millis(500);
/// How long nothing is sent to a push service that did not answer.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// The most push services whose silence is remembered.
const MOST_SILENT: usize = 1_000;

/// What the sender needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PushSender {
    pub(crate) db: Db,
    pub(crate) services: PushServices,
    pub(crate) metrics: IdentityMetrics,
    pub(crate) clock: Clock,
    pub(crate) drain: Drain,
}

impl PushSender {
    pub(crate) async fn run(self) {
        let (added, drain) = (self.db.notifier().subscribe(topic()), self.drain.clone());
        send_all(Pushes { sender: self, known: Known::default() }, added, drain.closing()).await;
    }

    async fn send(self, delivery: Delivery) -> Tried {
        let (user, to) = (delivery.user, origin(&delivery));
        let notification = Notification {
            to: &delivery.to,
            payload: &delivery.payload,
            topic: &delivery.attention,
            is_urgent: delivery.is_urgent,
            expires_at: delivery.expires_at,
        };
        let sent = self.services.send(&notification, self.clock.now()).await;
        match pushes::record(&self.db, delivery, sent).await {
            Ok(outcome) => {
                if outcome == Outcome::Refused {
                    tracing::warn!(push.service = %to, "A push service refused a notification");
                }
                self.metrics.pushed(outcome);
            }
            // It is taken again, and at worst sent a second time, which replaces the first.
            Err(error) => tracing::warn!(%error, "It could not be recorded what became of a notification"),
        }
        Tried { user, to, is_silent: sent == Sent::Silent }
    }
}

struct Pushes {
    sender: PushSender,
    known: Known,
}

struct Tried {
    user: UserId,
    /// The push service.
    to: String,
    is_silent: bool,
}

impl Deliveries for Pushes {
    type Delivery = Delivery;
    type Tried = Tried;

    fn most(&self) -> usize {
        MOST
    }

    /// Takes one of each account, without what goes to a push service that does not answer, or that gets enough at present.
    async fn take(&mut self, free: usize) -> Result<Due<Delivery>, StoreError> {
        self.known.silent.retain(|_, until| *until > Instant::now());
        let db = &self.sender.db;
        let due = pushes::take(db, free, self.known.busy_users()).await?;
        let mut taken = Vec::new();
        for delivery in due.taken {
            match self.known.wait(&delivery) {
                Some(wait) => pushes::hold_back(db, &delivery, wait).await?,
                None => taken.push(delivery),
            }
        }
        Ok(Due { taken, next: due.next })
    }

    fn send(&self, delivery: Delivery) -> impl Future<Output = Tried> + Send + 'static {
        self.sender.clone().send(delivery)
    }

    fn note(&mut self, tried: Tried) {
        self.known.note(tried);
    }
}

fn origin(delivery: &Delivery) -> String {
    Url::parse(&delivery.to.endpoint).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// What is known of push services and accounts.
#[derive(Default)]
struct Known {
    /// The push services that did not answer, and until when nothing is sent there.
    silent: HashMap<String, Instant>,
    /// How many notifications are being sent to a push service.
    busy: HashMap<String, usize>,
    /// How many notifications of an account are being sent.
    of_users: HashMap<UserId, usize>,
}

impl Known {
    /// The accounts that have reached their limit of notifications in flight.
    fn busy_users(&self) -> Vec<UserId> {
        self.of_users.iter().filter(|(_, sent)| **sent >= MOST_OF_ONE).map(|(user, _)| *user).collect()
    }

    /// How long this one has to wait. `None`: it is sent now.
    fn wait(&mut self, delivery: &Delivery) -> Option<Duration> {
        let origin = origin(delivery);
        if let Some(until) = self.silent.get(&origin) {
            return Some(until.saturating_duration_since(Instant::now()));
        }
        let busy = self.busy.entry(origin).or_default();
        if *busy >= MOST_TO_ONE {
            return Some(NO_ROOM);
        }
        *busy += 1;
        *self.of_users.entry(delivery.user).or_default() += 1;
        None
    }

    /// One was sent.
    fn note(&mut self, Tried { user, to, is_silent }: Tried) {
        one_less(&mut self.busy, &to);
        one_less(&mut self.of_users, &user);
        if !is_silent {
            self.silent.remove(&to);
        } else if self.silent.len() < MOST_SILENT {
            self.silent.insert(to, Instant::now() + COOL_DOWN);
        }
    }
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
