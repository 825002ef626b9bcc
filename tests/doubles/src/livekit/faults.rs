//! Faults of calls and webhooks, planned or random.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How a call fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The answer is late.
    Slow(Duration),
    /// The call waits until [`Double::release`](crate::livekit::Double::release).
    Held,
    /// 401 in plain text with the token in it, as for an unknown key.
    PlainUnauthorized,
    /// 503 with a Twirp error.
    Unavailable,
    /// 502 with an HTML page, as a proxy sends it.
    BadGateway,
    /// Any Twirp error, for example `resource_exhausted` with 429.
    Twirp(u16, &'static str),
    /// The call takes effect and its answer is lost: the connection hangs for this time and fails.
    EffectWithoutAnswer(Duration),
    /// The call has no effect, and hangs for this time.
    Hang(Duration),
}

/// Faults of webhooks, as probabilities between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookFaults {
    pub lost: f64,
    pub doubled: f64,
    /// Held back for up to `delay`, so that later ones overtake it.
    pub late: f64,
    pub delay: Duration,
}

#[derive(Default)]
pub(crate) struct Faults(Mutex<Plan>);

#[derive(Default)]
struct Plan {
    next: HashMap<String, Vec<Fault>>,
    random: Option<Random>,
}

struct Random {
    likelihood: f64,
    faults: Vec<Fault>,
    dice: StdRng,
}

impl Faults {
    pub(crate) fn next(&self, method: &str, fault: Fault, times: usize) {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.next.entry(method.to_owned()).or_default().extend(std::iter::repeat_n(fault, times));
    }

    pub(crate) fn randomly(&self, likelihood: f64, faults: Vec<Fault>, seed: u64) {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.random = Some(Random { likelihood, faults, dice: StdRng::seed_from_u64(seed) });
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Plan::default();
    }

    /// The fault of this call.
    pub(crate) fn draw(&self, method: &str) -> Option<Fault> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in [method, "*"] {
            if let Some(queue) = plan.next.get_mut(name)
                && !queue.is_empty()
            {
                return Some(queue.remove(0));
            }
        }
        let random = plan.random.as_mut()?;
        if random.faults.is_empty() || !random.dice.gen_bool(random.likelihood) {
            return None;
        }
        let choice = random.dice.gen_range(0..random.faults.len());
        random.faults.get(choice).cloned()
    }
}
