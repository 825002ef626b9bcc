//! What can go wrong, and when it does.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How a call goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The answer comes late.
    Slow(Duration),
    /// 401 in plain text with the token in it, as for an unknown key.
    PlainUnauthorized,
    /// 503 with a Twirp error.
    Unavailable,
    /// 502 with a proxy's page.
    BadGateway,
    /// Any Twirp error, for example `resource_exhausted` with 429.
    Twirp(u16, &'static str),
    /// It is done, and the answer is lost: the connection hangs for so long and breaks.
    EffectWithoutAnswer(Duration),
    /// Nothing is done, and nobody answers for so long.
    Hang(Duration),
}

/// What happens to webhooks, as likelihoods between 0 and 1.
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

    pub(crate) fn mend(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Plan::default();
    }

    /// What this call suffers.
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
