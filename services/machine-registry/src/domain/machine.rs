//! A machine and its presence.

use std::time::Duration;

use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::{self, Activity, RegisterMachine, SeenList};
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;

/// A machine of an account.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) id: MachineId,
    pub(crate) reference: Ref,
    /// Sealed by the owner.
    pub(crate) metadata: Versioned<String>,
    /// Sealed to the owner.
    pub(crate) encryption_key: String,
    /// The owner's content epoch in which the key was sealed.
    pub(crate) content_epoch: Option<ContentEpoch>,
    /// Sealed by the owner. Version 0: never set.
    pub(crate) daemon_state: Versioned<Option<String>>,
    /// Sent with the last heartbeat.
    pub(crate) activity: Option<Activity>,
    /// The newest device list that the machine says it obeys. Only the owner's programs can check it.
    pub(crate) seen: Option<SeenList>,
    pub(crate) presence: Presence,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// A value and the number of times that it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) version: i64,
}

/// Whether a machine is online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) last_active_at: Option<Timestamp>,
    pub(crate) online: bool,
}

/// A machine that is to be registered.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) id: MachineId,
    pub(crate) metadata: String,
    pub(crate) encryption_key: String,
    pub(crate) content_epoch: Option<ContentEpoch>,
}

impl Presence {
    /// Both times are the database's.
    pub(crate) fn new(
        last_active_at: Option<Timestamp>,
        signed_off: bool,
        now: Timestamp,
        online_for: Duration,
    ) -> Self {
        let online = !signed_off && last_active_at.is_some_and(|beat| now < beat.plus(online_for));
        Self { last_active_at, online }
    }

    pub(crate) fn after_heartbeat(now: Timestamp, signs_off: bool) -> Self {
        Self { last_active_at: Some(now), online: !signs_off }
    }
}

impl From<RegisterMachine> for Draft {
    fn from(body: RegisterMachine) -> Self {
        Self {
            id: body.id.unwrap_or_else(MachineId::generate),
            metadata: body.metadata.into_string(),
            encryption_key: body.encryption_key.into_string(),
            content_epoch: body.content_epoch,
        }
    }
}

impl From<Machine> for machines::Machine {
    fn from(machine: Machine) -> Self {
        Self {
            id: machine.id,
            reference: machine.reference,
            metadata: machine.metadata.value,
            metadata_version: machine.metadata.version,
            encryption_key: machine.encryption_key,
            content_epoch: machine.content_epoch,
            daemon_state: machine.daemon_state.value,
            daemon_state_version: machine.daemon_state.version,
            activity: machine.activity,
            seen: machine.seen,
            online: machine.presence.online,
            last_active_at: machine.presence.last_active_at,
            created_at: machine.created_at,
            updated_at: machine.updated_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_online_for_a_while_after_a_heartbeat() {
        let beat = Timestamp::from_unix_seconds(1_000);
        let online_for = Duration::from_secs(60);
        let online =
            |seconds| Presence::new(Some(beat), false, Timestamp::from_unix_seconds(seconds), online_for).online;
        assert!(online(1_000) && online(1_059));
        assert!(!online(1_060) && !online(5_000));
        assert!(!Presence::new(None, false, beat, online_for).online, "it has sent no heartbeat");
        assert!(!Presence::new(Some(beat), true, beat, online_for).online, "its runner has ended");
    }
}
