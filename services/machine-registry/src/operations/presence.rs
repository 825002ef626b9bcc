//! Which machines are known to be there on this replica, so that their people get a hint when that changes, and none for each
//! heartbeat.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ensemble_store_kit::{Db, Topic, hints};
use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::machines::Activity;
use ensemble_types::time::Timestamp;

use crate::domain::{Machine, OwnMachine};

/// With more machines than this on one replica, all are forgotten, and each next heartbeat gives a hint.
const MOST: usize = 100_000;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Presences(Arc<Mutex<HashMap<OwnMachine, Seen>>>);

struct Seen {
    at: Instant,
    /// What the last heartbeat said of the machine.
    activity: Option<Activity>,
}

/// The topic of a hint that a machine has changed.
pub(crate) fn changed(own: &OwnMachine, now: Timestamp) -> Topic {
    let (user, kind, id) = (own.owner, HintKind::Machine, own.id.to_string());
    hints::topic(&AccountHint { user, machine: None, kind, id, revision: now.micros() })
}

impl Presences {
    /// Notes a heartbeat, or the end of a machine. True when it says something new.
    pub(crate) fn note(&self, own: &OwnMachine, machine: &Machine, now: Instant) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !machine.presence.online {
            return seen.remove(own).is_some();
        }
        if seen.len() >= MOST {
            seen.clear();
        }
        let before = seen.insert(own.clone(), Seen { at: now, activity: machine.activity.clone() });
        before.is_none_or(|before| before.activity != machine.activity)
    }

    /// Takes those that were last seen before this time.
    fn gone(&self, before: Instant) -> Vec<OwnMachine> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extract_if(|_, seen| seen.at < before).map(|(own, _)| own).collect()
    }

    /// Gives hints of the machines that were not seen for this long.
    pub(crate) fn give_gone(&self, db: &Db, online_for: Duration, now: Timestamp) {
        let Some(before) = Instant::now().checked_sub(online_for) else { return };
        db.notifier().publish(self.gone(before).iter().map(|own| changed(own, now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(online: bool, activity: &str) -> Machine {
        let at = Timestamp::from_unix_seconds(1_000);
        Machine {
            id: "laptop".parse().unwrap(),
            reference: ensemble_types::refs::Ref::of(&"laptop"),
            metadata: crate::domain::Versioned { value: String::new(), version: 1 },
            encryption_key: String::new(),
            content_epoch: None,
            daemon_state: crate::domain::Versioned { value: None, version: 0 },
            activity: Some(Activity::from_text(activity.to_owned()).unwrap()),
            seen: None,
            presence: crate::domain::Presence { last_active_at: Some(at), online },
            created_at: at,
            updated_at: at,
        }
    }

    #[test]
    fn only_what_is_new_is_a_change() {
        let (presences, start) = (Presences::default(), Instant::now());
        let own = OwnMachine { owner: ensemble_types::ids::UserId::generate(), id: "laptop".parse().unwrap() };
        let note = |online, activity: &str, after| {
            presences.note(&own, &machine(online, activity), start + Duration::from_secs(after))
        };
        assert!(note(true, r#"{"a":1}"#, 0), "it has come");
        assert!(!note(true, r#"{"a":1}"#, 15));
        assert!(note(true, r#"{"a":2}"#, 30), "it says something else");
        assert!(note(false, r#"{"a":2}"#, 45), "it has ended");
        assert!(!note(false, r#"{"a":2}"#, 46));
        assert!(note(true, r#"{"a":2}"#, 60));
        assert_eq!(presences.gone(start + Duration::from_secs(60)), []);
        assert_eq!(presences.gone(start + Duration::from_secs(61)), std::slice::from_ref(&own));
        assert_eq!(presences.gone(start + Duration::from_secs(90)), [], "it is gone once");
    }
}
