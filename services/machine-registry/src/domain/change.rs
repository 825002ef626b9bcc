//! Changes of a machine: which updates are valid, and which conflict with an earlier one.

use ensemble_types::epochs::ContentEpoch;
use ensemble_types::machines::{Activity, SeenList, UpdateMachine};
use ensemble_types::time::Timestamp;

use super::{Machine, Presence, Versioned};

/// An update that changes something, with the field that each expected version belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) metadata: Option<Edit>,
    pub(crate) daemon_state: Option<Edit>,
    /// A new key, and the owner's content epoch in which it was sealed.
    pub(crate) key: Option<(String, Option<ContentEpoch>)>,
    /// The heartbeat.
    pub(crate) activity: Option<Activity>,
    /// The list that the machine obeys now.
    pub(crate) seen: Option<SeenList>,
    /// The runner says with the heartbeat that it ends.
    pub(crate) signs_off: bool,
}

/// A new value of a versioned field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) value: String,
    /// Without it the last write wins.
    pub(crate) expected: Option<i64>,
}

/// An update that is invalid for any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadChange {
    #[error("at least one of metadata, daemonState, encryptionKey, seen and activity is needed")]
    Empty,
    /// `expectedVersion` without a versioned field, or with two.
    #[error("expectedVersion needs exactly one versioned field")]
    AmbiguousVersion,
    /// The field's version was given twice, or without the field.
    #[error("contentEpoch belongs to encryptionKey")]
    StrayEpoch,
    #[error("{0} does not fit the other fields")]
    StrayVersion(&'static str),
}

/// The field has another version than the update expects. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is at version {}", current.version)]
pub(crate) struct VersionMismatch {
    /// Its name on the wire.
    pub(crate) field: &'static str,
    pub(crate) current: Versioned<Option<String>>,
}

impl Change {
    pub(crate) fn new(body: UpdateMachine) -> Result<Self, BadChange> {
        if body.content_epoch.is_some() && body.encryption_key.is_none() {
            return Err(BadChange::StrayEpoch);
        }
        if body.metadata.is_none()
            && body.daemon_state.is_none()
            && body.activity.is_none()
            && body.encryption_key.is_none()
            && body.seen.is_none()
        {
            return Err(BadChange::Empty);
        }
        if body.online.is_some() && body.activity.is_none() {
            return Err(BadChange::StrayVersion("online"));
        }
        let versioned = usize::from(body.metadata.is_some()) + usize::from(body.daemon_state.is_some());
        if body.expected_version.is_some() && versioned != 1 {
            return Err(BadChange::AmbiguousVersion);
        }
        let edit = |value: Option<String>, own: Option<i64>, name| match (value, own, body.expected_version) {
            (None, Some(_), _) | (Some(_), Some(_), Some(_)) => Err(BadChange::StrayVersion(name)),
            (value, own, shared) => Ok(value.map(|value| Edit { value, expected: own.or(shared) })),
        };
        let metadata = body.metadata.map(|text| text.into_string());
        let daemon_state = body.daemon_state.map(|text| text.into_string());
        Ok(Self {
            metadata: edit(metadata, body.expected_metadata_version, "expectedMetadataVersion")?,
            daemon_state: edit(daemon_state, body.expected_daemon_state_version, "expectedDaemonStateVersion")?,
            key: body.encryption_key.map(|key| (key.into_string(), body.content_epoch)),
            activity: body.activity,
            seen: body.seen,
            signs_off: body.online == Some(false),
        })
    }

    /// The activity, if there is nothing else. Such an update cannot conflict, so it need not read the machine first.
    pub(crate) fn heartbeat(&self) -> Option<&Activity> {
        let is_alone =
            self.metadata.is_none() && self.daemon_state.is_none() && self.key.is_none() && self.seen.is_none();
        self.activity.as_ref().filter(|_| is_alone)
    }
}

impl Machine {
    /// The machine after the change. A heartbeat alone does not touch `updated_at`.
    pub(crate) fn change(mut self, change: Change, now: Timestamp) -> Result<Self, VersionMismatch> {
        if let Some(edit) = change.metadata {
            let current = Versioned { value: Some(self.metadata.value), version: self.metadata.version };
            let version = edit.version_after(current, "metadata")?;
            (self.metadata, self.updated_at) = (Versioned { value: edit.value, version }, now);
        }
        if let Some(edit) = change.daemon_state {
            let version = edit.version_after(self.daemon_state, "daemonState")?;
            (self.daemon_state, self.updated_at) = (Versioned { value: Some(edit.value), version }, now);
        }
        if let Some((key, epoch)) = change.key {
            (self.encryption_key, self.content_epoch, self.updated_at) = (key, epoch, now);
        }
        // What comes late says less than what came before it.
        let is_newer = |seen: &SeenList| self.seen.as_ref().is_none_or(|known| known.version <= seen.version);
        if let Some(seen) = change.seen.filter(is_newer) {
            (self.seen, self.updated_at) = (Some(seen), now);
        }
        if let Some(activity) = change.activity {
            (self.activity, self.presence) = (Some(activity), Presence::after_heartbeat(now, change.signs_off));
        }
        Ok(self)
    }
}

impl Edit {
    fn version_after(&self, current: Versioned<Option<String>>, field: &'static str) -> Result<i64, VersionMismatch> {
        match self.expected {
            Some(expected) if expected != current.version => Err(VersionMismatch { field, current }),
            _ => Ok(current.version + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::text::Blob;

    use super::*;

    fn machine() -> Machine {
        let at = Timestamp::from_unix_seconds(1);
        Machine {
            id: "m".parse().unwrap(),
            reference: "00000000".parse().unwrap(),
            metadata: Versioned { value: "m1".to_owned(), version: 1 },
            encryption_key: "k".to_owned(),
            content_epoch: None,
            daemon_state: Versioned { value: None, version: 0 },
            activity: None,
            seen: None,
            presence: Presence { last_active_at: None, online: false },
            created_at: at,
            updated_at: at,
        }
    }

    fn update(metadata: Option<&str>, daemon_state: Option<&str>) -> UpdateMachine {
        UpdateMachine {
            metadata: metadata.map(|text| Blob::new(text).unwrap()),
            daemon_state: daemon_state.map(|text| Blob::new(text).unwrap()),
            ..UpdateMachine::default()
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_unix_seconds(9)
    }

    #[test]
    fn an_expected_version_must_belong_to_one_field() {
        let refused = |body: UpdateMachine| Change::new(body).unwrap_err();
        assert_eq!(refused(UpdateMachine::default()), BadChange::Empty);
        let two = UpdateMachine { expected_version: Some(1), ..update(Some("a"), Some("b")) };
        assert_eq!(refused(two), BadChange::AmbiguousVersion);
        let none = UpdateMachine {
            expected_version: Some(1),
            activity: Some(Activity::from_text("{}".to_owned()).unwrap()),
            ..UpdateMachine::default()
        };
        assert_eq!(refused(none), BadChange::AmbiguousVersion);
        let stray = UpdateMachine { expected_daemon_state_version: Some(1), ..update(Some("a"), None) };
        assert_eq!(refused(stray), BadChange::StrayVersion("expectedDaemonStateVersion"));
        let twice =
            UpdateMachine { expected_version: Some(1), expected_metadata_version: Some(1), ..update(Some("a"), None) };
        assert_eq!(refused(twice), BadChange::StrayVersion("expectedMetadataVersion"));
    }

    #[test]
    fn each_field_has_a_version_of_its_own() {
        let change = Change::new(update(Some("m2"), Some("d1"))).unwrap();
        let changed = machine().change(change, now()).unwrap();
        assert_eq!((changed.metadata.version, changed.daemon_state.version), (2, 1));
        assert_eq!(changed.updated_at, now());
    }

    #[test]
    fn a_conflicting_update_gets_the_current_value() {
        let body = UpdateMachine { expected_version: Some(3), ..update(Some("m2"), None) };
        let refused = machine().change(Change::new(body).unwrap(), now()).unwrap_err();
        let current = Versioned { value: Some("m1".to_owned()), version: 1 };
        assert_eq!(refused, VersionMismatch { field: "metadata", current });
        let both = UpdateMachine {
            expected_metadata_version: Some(1),
            expected_daemon_state_version: Some(5),
            ..update(Some("m2"), Some("d1"))
        };
        assert_eq!(machine().change(Change::new(both).unwrap(), now()).unwrap_err().field, "daemonState");
    }

    #[test]
    fn a_heartbeat_raises_no_version() {
        let body =
            UpdateMachine { activity: Some(Activity::from_text("{}".to_owned()).unwrap()), ..UpdateMachine::default() };
        let change = Change::new(body).unwrap();
        assert!(change.heartbeat().is_some());
        let changed = machine().change(change, now()).unwrap();
        assert_eq!((changed.metadata.version, changed.daemon_state.version), (1, 0));
        assert_eq!(changed.updated_at, machine().updated_at);
        assert!(changed.presence.online);
    }

    #[test]
    fn an_older_list_does_not_replace_the_one_that_a_machine_obeys() {
        let seen = |version, digest: &str| SeenList {
            version,
            digest: Blob::new(digest.repeat(43)).unwrap(),
            sig: Blob::new("s".repeat(86)).unwrap(),
        };
        let mut obeys = machine();
        for (version, digest, expected) in [(3, "a", 3), (2, "b", 3), (3, "c", 3), (4, "d", 4)] {
            let body = UpdateMachine { seen: Some(seen(version, digest)), ..UpdateMachine::default() };
            obeys = obeys.change(Change::new(body).unwrap(), now()).unwrap();
            assert_eq!(obeys.seen.as_ref().unwrap().version, expected, "after {version}");
        }
    }

    #[test]
    fn one_expected_version_serves_the_one_field_that_changes() {
        for (metadata, daemon_state) in [(Some("m2"), None), (None, Some("d1"))] {
            let body = UpdateMachine { expected_version: Some(7), ..update(metadata, daemon_state) };
            let change = Change::new(body).unwrap();
            let expected: Vec<_> = [change.metadata, change.daemon_state].into_iter().flatten().collect();
            assert_eq!(expected.iter().map(|edit| edit.expected).collect::<Vec<_>>(), [Some(7)]);
        }
    }

    #[test]
    fn an_update_with_a_versioned_field_is_more_than_a_heartbeat() {
        for (metadata, daemon_state) in [(Some("m2"), None), (None, Some("d1")), (Some("m2"), Some("d1"))] {
            let activity = Some(Activity::from_text("{}".to_owned()).unwrap());
            let body = UpdateMachine { activity, ..update(metadata, daemon_state) };
            assert!(Change::new(body).unwrap().heartbeat().is_none());
        }
        assert!(Change::new(update(Some("m2"), None)).unwrap().heartbeat().is_none());
    }

    #[test]
    fn an_update_of_the_current_version_replaces_it() {
        let body = UpdateMachine { expected_version: Some(1), ..update(Some("m2"), None) };
        let changed = machine().change(Change::new(body).unwrap(), now()).unwrap();
        assert_eq!(changed.metadata, Versioned { value: "m2".to_owned(), version: 2 });
        assert!(!changed.presence.online, "only a heartbeat shows that it is online");
    }
}
