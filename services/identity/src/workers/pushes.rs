//! Sends notifications as they become due: some at once, so that a slow push service delays nobody else, and the accounts in turn, so that
//! one with much to send delays nobody else. Several replicas may run it.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use ensemble_chassis::{Clock, Drain};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{DeviceId, UserId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::Url;

use crate::clients::{Notification, PushServices, Sent};
use crate::metrics::IdentityMetrics;
use crate::operations::pushes::{self, Outcome};
use crate::store::pushes::{Delivery, Passed, topic};

/// At once.
const MOST: usize = 8;
/// Of them, to one push service.
const MOST_TO_ONE: usize = 4;
/// Of them, of one account.
const MOST_OF_ONE: usize = 2;
/// How long one waits for which there is no room.
const NO_ROOM: Duration = Duration::from_millis(500);
/// How long nothing is sent to a push service that did not answer.
const COOL_DOWN: Duration = Duration::from_secs(10);
/// How long nothing is sent to a device whose push service did not answer: an account's devices can name many push services.
const DEVICE_COOL_DOWN: Duration = Duration::from_secs(60);
/// The most push services, and devices, whose silence is remembered.
const MOST_SILENT: usize = 1_000;
/// The most accounts whose last turn is remembered.
const MOST_TURNS: usize = 10_000;
/// A delivery that another replica had taken is looked for after this time, when nothing else is due.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

pub(crate) struct PushSender {
    pub(crate) db: Db,
    pub(crate) services: PushServices,
    pub(crate) metrics: IdentityMetrics,
    pub(crate) clock: Clock,
    pub(crate) drain: Drain,
}

impl PushSender {
    pub(crate) async fn run(self) {
        let mut given = self.db.notifier().subscribe(topic());
        let mut sending = FuturesUnordered::new();
        let mut known = Known::default();
        while !self.drain.is_closing() {
            let next = match self.fill(&mut known, MOST - sending.len()).await {
                Ok((taken, next)) => {
                    sending.extend(taken.into_iter().map(|delivery| self.send(delivery)));
                    if sending.len() < MOST { next.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT) } else { LONGEST_WAIT }
                }
                Err(error) => {
                    tracing::warn!(%error, "Notifications cannot be read");
                    PAUSE_AFTER_ERROR
                }
            };
            tokio::select! {
                Some((to, is_silent)) = sending.next() => known.note(to, is_silent),
                () = given.changed() => {}
                () = tokio::time::sleep(next) => {}
                () = self.drain.closing() => break,
            }
        }
        // Those that are being sent have ten seconds at most.
        while sending.next().await.is_some() {}
    }

    /// Takes what is due, without what goes to a push service that does not answer, or that gets enough at present. Says when there is more.
    async fn fill(&self, known: &mut Known, free: usize) -> Result<(Vec<Delivery>, Option<Duration>), StoreError> {
        if free == 0 {
            return Ok((Vec::new(), None));
        }
        known.forget();
        let passed = known.passed();
        let mut users = pushes::waiting(&self.db, &passed).await?;
        // Those that had their turn longest ago.
        users.sort_by_key(|user| known.turns.get(user).copied());
        let is_for_all = users.len() * MOST_OF_ONE <= free;
        let of = users.into_iter().take(free);
        let of: Vec<_> = of.map(|user| (user, if is_for_all { known.room(user) } else { 1 })).collect();
        let mut sent = Vec::new();
        if !of.is_empty() {
            for delivery in pushes::take(&self.db, of, &passed).await? {
                known.turn(delivery.user);
                match known.wait(&delivery) {
                    Some(wait) => pushes::hold_back(&self.db, &delivery, wait).await?,
                    None => sent.push(delivery),
                }
            }
        }
        let next = pushes::next_due(&self.db, known.passed()).await?;
        Ok((sent, next.into_iter().chain(known.next_end()).min()))
    }

    /// Where it was sent, and whether there was no answer.
    async fn send(&self, delivery: Delivery) -> (To, bool) {
        let to = To::of(&delivery);
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
                    tracing::warn!(push.service = %to.origin, "A push service refused a notification");
                }
                self.metrics.pushed(outcome);
            }
            // It is taken again, and at worst sent a second time, which replaces the first.
            Err(error) => tracing::warn!(%error, "It could not be recorded what became of a notification"),
        }
        (to, sent == Sent::Silent)
    }
}

struct To {
    user: UserId,
    device: DeviceId,
    /// The push service.
    origin: String,
}

impl To {
    fn of(delivery: &Delivery) -> Self {
        let origin = Url::parse(&delivery.to.endpoint).map(|url| url.origin().ascii_serialization());
        Self { user: delivery.user, device: delivery.device, origin: origin.unwrap_or_default() }
    }
}

/// What is known of push services, devices and accounts.
#[derive(Default)]
struct Known {
    /// Push services that did not answer, and until when nothing is sent there.
    silent: HashMap<String, Instant>,
    /// The same of devices.
    silent_devices: HashMap<DeviceId, Instant>,
    /// How many are being sent to a push service.
    busy: HashMap<String, usize>,
    /// How many of an account.
    busy_users: HashMap<UserId, usize>,
    /// When an account had its last turn, in turns of all.
    turns: HashMap<UserId, usize>,
    turn: usize,
}

impl Known {
    fn forget(&mut self) {
        let now = Instant::now();
        self.silent.retain(|_, until| *until > now);
        self.silent_devices.retain(|_, until| *until > now);
        if self.turns.len() > MOST_TURNS {
            let before = self.turn.saturating_sub(MOST_TURNS / 2);
            self.turns.retain(|_, turn| *turn > before);
        }
    }

    fn passed(&self) -> Passed {
        let full = self.busy_users.iter().filter(|(_, busy)| **busy >= MOST_OF_ONE);
        Passed { users: full.map(|(user, _)| *user).collect(), devices: self.silent_devices.keys().copied().collect() }
    }

    /// How long until something is sent again to a device that is passed over.
    fn next_end(&self) -> Option<Duration> {
        self.silent_devices.values().min().map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// How many of this account may be sent now.
    fn room(&self, user: UserId) -> i64 {
        let busy = self.busy_users.get(&user).copied().unwrap_or(0);
        i64::try_from(MOST_OF_ONE.saturating_sub(busy)).unwrap_or(0)
    }

    fn turn(&mut self, user: UserId) {
        self.turn += 1;
        self.turns.insert(user, self.turn);
    }

    /// How long this one has to wait. `None`: it is sent now.
    fn wait(&mut self, delivery: &Delivery) -> Option<Duration> {
        let To { user, origin, .. } = To::of(delivery);
        if let Some(until) = self.silent.get(&origin) {
            return Some(until.saturating_duration_since(Instant::now()));
        }
        let busy = self.busy.entry(origin).or_default();
        if *busy >= MOST_TO_ONE {
            return Some(NO_ROOM);
        }
        *busy += 1;
        *self.busy_users.entry(user).or_default() += 1;
        None
    }

    /// One was sent.
    fn note(&mut self, to: To, is_silent: bool) {
        let To { user, device, origin } = to;
        one_less(&mut self.busy, &origin);
        one_less(&mut self.busy_users, &user);
        if !is_silent {
            self.silent.remove(&origin);
            self.silent_devices.remove(&device);
            return;
        }
        if self.silent.len() < MOST_SILENT {
            self.silent.insert(origin, Instant::now() + COOL_DOWN);
        }
        if self.silent_devices.len() < MOST_SILENT {
            self.silent_devices.insert(device, Instant::now() + DEVICE_COOL_DOWN);
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
