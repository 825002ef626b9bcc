//! The database: voice sessions, their texts and contexts, webhooks that were taken in, usage, and who does which chore.
//!
//! Every change of a session goes through one row lock: load, let the domain decide, save. What follows from a save (a
//! timer that is due earlier, something to deliver) is told to this process after the commit; other replicas find it in
//! the database when their sweep comes.

mod confirm;
mod known;
mod nudges;
mod one_call;
mod outbox;
mod rows;
mod sessions;
mod start;
mod timers;
mod usage;
mod webhooks;

use ensemble_store_kit::{Db, Notifier, Topic};
use ensemble_types::ids::GatewaySessionId;

pub(crate) use nudges::{Nudge, Nudges};
pub(crate) use outbox::{Accepted, Delivery};
pub(crate) use sessions::Found;
pub(crate) use start::{NewSession, Opened, Recorded, StartKey};
pub(crate) use timers::Chore;
pub(crate) use webhooks::Taken;

use self::confirm::Confirmer;
use self::known::Known;
use crate::domain::state::Rules;
use crate::metrics::VoiceMetrics;

#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
    rules: Rules,
    nudges: Nudges,
    metrics: VoiceMetrics,
    confirmer: Confirmer,
    known: Known,
}

impl Store {
    pub(crate) fn start(db: Db, rules: Rules, nudges: Nudges, metrics: VoiceMetrics) -> std::io::Result<Self> {
        let confirmer = Confirmer::start(db.clone())?;
        Ok(Self { db, rules, nudges, metrics, confirmer, known: Known::default() })
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) fn nudges(&self) -> &Nudges {
        &self.nudges
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        self.db.notifier()
    }

    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.db.ready().await
    }
}

/// What is told when a session's state or queue has changed.
pub(crate) fn topic(id: GatewaySessionId) -> Topic {
    Topic::new("voice", id)
}
