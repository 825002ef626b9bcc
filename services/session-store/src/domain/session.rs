//! New sessions, changes of sessions, and the access level that each change needs. Parsing refuses changes that contradict
//! themselves, so later code need not check again.

use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::sessions::{AccessLevel, CreateSession, SessionHeartbeat, SessionStatus, UpdateSession};
use ensemble_types::text::Text;

use super::Invalid;
use super::access::Access;
use super::attention::NewAttention;

/// A session that a caller wants to create.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Chosen by the client.
    pub(crate) id: Option<SessionId>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) metadata: String,
    pub(crate) encryption_key: String,
    pub(crate) content_epoch: Option<ContentEpoch>,
    pub(crate) tag: Option<String>,
}

impl Draft {
    pub(crate) fn new(body: CreateSession) -> Result<Self, Invalid> {
        if body.id.is_some_and(|id| id.uuid().get_version_num() != 7) {
            return Err(Invalid::new("/id", "must be a UUID of version 7"));
        }
        Ok(Self {
            id: body.id,
            machine: body.machine_id,
            metadata: body.metadata.into_string(),
            encryption_key: body.encryption_key.into_string(),
            content_epoch: body.content_epoch,
            tag: body.tag.map(Text::into_string),
        })
    }
}

/// At least one change, and the versions that the caller expects.
#[derive(Debug)]
pub(crate) struct SessionChange {
    pub(crate) metadata: Option<Versioned>,
    pub(crate) agent_state: Option<Versioned>,
    pub(crate) status: Option<SessionStatus>,
    pub(crate) archived: Option<bool>,
    pub(crate) key: Option<NewKey>,
    pub(crate) attention: Option<NewAttention>,
    pub(crate) heartbeat: Option<SessionHeartbeat>,
}

/// A new value for a field that has a version.
#[derive(Debug)]
pub(crate) struct Versioned {
    pub(crate) value: String,
    /// The version that this replaces. Without it, any version is replaced.
    pub(crate) expected: Option<i64>,
}

/// A new key of a session.
#[derive(Debug)]
pub(crate) struct NewKey {
    /// Sealed to the owner.
    pub(crate) value: String,
    pub(crate) expected_epoch: i64,
    pub(crate) content_epoch: Option<ContentEpoch>,
    /// Sealed to the session's machine.
    pub(crate) host_key: Option<String>,
}

impl SessionChange {
    pub(crate) fn new(update: UpdateSession) -> Result<Self, Invalid> {
        let UpdateSession {
            metadata,
            agent_state,
            status,
            archived,
            encryption_key,
            expected_key_epoch,
            content_epoch,
            host_key,
            attention,
            heartbeat,
            expected_version,
            expected_metadata_version,
            expected_agent_state_version,
        } = update;
        let versioned = [metadata.is_some(), agent_state.is_some(), attention.is_some()];
        if expected_version.is_some() && versioned.into_iter().filter(|is_there| *is_there).count() != 1 {
            let detail = "requires a change of exactly one of metadata, agentState and attention";
            return Err(Invalid::new("/expectedVersion", detail));
        }
        for (field, expects, changes) in [
            ("Metadata", expected_metadata_version.is_some(), metadata.is_some()),
            ("AgentState", expected_agent_state_version.is_some(), agent_state.is_some()),
        ] {
            if expects && !changes {
                let pointer = format!("/expected{field}Version");
                return Err(Invalid::new(pointer, "is the version of a field that this request does not change"));
            }
            if expects && expected_version.is_some() {
                return Err(Invalid::new(
                    "/expectedVersion",
                    format!("cannot be combined with expected{field}Version; send one of them"),
                ));
            }
        }
        let key = match (encryption_key, expected_key_epoch) {
            (Some(key), Some(expected_epoch)) => Some(NewKey {
                value: key.into_string(),
                expected_epoch,
                content_epoch,
                host_key: host_key.map(|key| key.into_string()),
            }),
            (None, None) if content_epoch.is_some() => {
                return Err(Invalid::new("/contentEpoch", "belongs to encryptionKey; send both"));
            }
            (None, None) if host_key.is_some() => {
                return Err(Invalid::new("/hostKey", "changes with encryptionKey; send both"));
            }
            (None, None) => None,
            _ => return Err(Invalid::new("/expectedKeyEpoch", "and encryptionKey must be sent together")),
        };
        let change = Self {
            metadata: metadata.map(|value| Versioned {
                value: value.into_string(),
                expected: expected_metadata_version.or(expected_version),
            }),
            agent_state: agent_state.map(|value| Versioned {
                value: value.into_string(),
                expected: expected_agent_state_version.or(expected_version),
            }),
            key,
            attention: attention.map(|set| NewAttention::new(set, expected_version)).transpose()?,
            status,
            archived,
            heartbeat,
        };
        if change.is_silent() && change.attention.is_none() && change.heartbeat.is_none() {
            return Err(Invalid::new("", "must change at least one field"));
        }
        Ok(change)
    }

    /// The access level that all of the change together requires.
    pub(crate) fn required_level(&self, access: &Access) -> AccessLevel {
        // The session's machine says what it wants, and gives it a new key that it has itself. Of people only the owner does that.
        let is_host = *access == Access::Host;
        let is_owners = self.attention.is_some() && !is_host;
        let is_owners_key = self.key.as_ref().is_some_and(|key| !is_host || key.host_key.is_none());
        if is_owners || is_owners_key || self.status.is_some() || self.archived.is_some() {
            AccessLevel::Owner
        } else if self.metadata.is_some() || self.agent_state.is_some() {
            AccessLevel::Admin
        } else {
            AccessLevel::Edit
        }
    }

    /// Only the machine of a hosted session has a key of its own.
    pub(crate) fn check_host_key(&self, is_hosted: bool) -> Result<(), Invalid> {
        match &self.key {
            Some(NewKey { host_key: Some(_), .. }) if !is_hosted => {
                Err(Invalid::new("/hostKey", "is for sessions that a machine made; this session is not one"))
            }
            _ => Ok(()),
        }
    }

    /// A heartbeat alone is not sent to streams.
    pub(crate) fn is_heartbeat_only(&self) -> bool {
        self.is_silent() && self.attention.is_none()
    }

    /// Whether `updatedAt` stays: heartbeats and what the session wants do not make it the newest one.
    pub(crate) fn is_silent(&self) -> bool {
        self.metadata.is_none()
            && self.agent_state.is_none()
            && self.status.is_none()
            && self.archived.is_none()
            && self.key.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Result<SessionChange, String> {
        SessionChange::new(serde_json::from_str(json).unwrap()).map_err(|invalid| invalid.pointer)
    }

    #[test]
    fn contradictions_name_the_field() {
        for (json, pointer) in [
            ("{}", ""),
            (r#"{"metadata":"a","agentState":"b","expectedVersion":1}"#, "/expectedVersion"),
            (r#"{"archived":true,"expectedVersion":1}"#, "/expectedVersion"),
            (r#"{"agentState":"b","expectedMetadataVersion":1}"#, "/expectedMetadataVersion"),
            (r#"{"metadata":"a","expectedVersion":1,"expectedMetadataVersion":1}"#, "/expectedVersion"),
            (r#"{"encryptionKey":"k"}"#, "/expectedKeyEpoch"),
            (r#"{"archived":true,"expectedKeyEpoch":1}"#, "/expectedKeyEpoch"),
            (r#"{"encryptionKey":"k","contentEpoch":1}"#, "/expectedKeyEpoch"),
            (r#"{"archived":true,"contentEpoch":1}"#, "/contentEpoch"),
            (r#"{"archived":true,"hostKey":"h"}"#, "/hostKey"),
        ] {
            assert_eq!(change(json).map(|_| ()), Err(pointer.to_owned()), "{json}");
        }
    }

    #[test]
    fn the_field_with_the_highest_requirement_decides() {
        for (json, level) in [
            (r#"{"heartbeat":{}}"#, AccessLevel::Edit),
            (r#"{"heartbeat":{},"metadata":"a","expectedVersion":1}"#, AccessLevel::Admin),
            (r#"{"metadata":"a","status":"ended"}"#, AccessLevel::Owner),
        ] {
            assert_eq!(change(json).unwrap().required_level(&Access::Person(AccessLevel::Owner)), level, "{json}");
        }
    }

    #[test]
    fn each_field_alone_has_its_requirement_and_is_more_than_a_heartbeat() {
        for (json, level) in [
            (r#"{"status":"ended"}"#, AccessLevel::Owner),
            (r#"{"archived":false}"#, AccessLevel::Owner),
            (r#"{"encryptionKey":"k","expectedKeyEpoch":1}"#, AccessLevel::Owner),
            (r#"{"metadata":"a","expectedMetadataVersion":1}"#, AccessLevel::Admin),
            (r#"{"agentState":"b","expectedAgentStateVersion":1}"#, AccessLevel::Admin),
        ] {
            let change = change(json).unwrap();
            assert_eq!(change.required_level(&Access::Person(AccessLevel::Owner)), level, "{json}");
            assert!(!change.is_heartbeat_only(), "{json}");
        }
        assert!(change(r#"{"heartbeat":{}}"#).unwrap().is_heartbeat_only());
    }

    #[test]
    fn of_people_only_the_owner_says_that_it_was_seen() {
        let seen = change(r#"{"attention":{"kind":"none"},"expectedVersion":1}"#).unwrap();
        assert_eq!(seen.required_level(&Access::Person(AccessLevel::Admin)), AccessLevel::Owner);
        assert_eq!(seen.required_level(&Access::Host), AccessLevel::Edit, "the machine says what the session wants");
    }

    #[test]
    fn an_expected_version_belongs_to_its_field() {
        let both =
            change(r#"{"metadata":"a","agentState":"b","expectedMetadataVersion":3,"expectedAgentStateVersion":4}"#);
        let expected = |field: Option<Versioned>| field.and_then(|field| field.expected);
        let both = both.unwrap();
        assert_eq!((expected(both.metadata), expected(both.agent_state)), (Some(3), Some(4)));
        let shared = change(r#"{"agentState":"b","expectedVersion":5}"#).unwrap();
        assert_eq!(expected(shared.agent_state), Some(5));
        let any = change(r#"{"metadata":"a"}"#).unwrap();
        assert_eq!(expected(any.metadata), None, "any version is replaced");
    }

    #[test]
    fn a_key_for_the_machine_needs_a_machine() {
        let with = change(r#"{"encryptionKey":"k","hostKey":"h","expectedKeyEpoch":1}"#).unwrap();
        assert_eq!(with.check_host_key(true), Ok(()));
        assert_eq!(with.check_host_key(false).map_err(|invalid| invalid.pointer), Err("/hostKey".to_owned()));
        let without = change(r#"{"encryptionKey":"k","expectedKeyEpoch":1}"#).unwrap();
        assert_eq!(without.check_host_key(false), Ok(()));
    }

    fn draft(json: &str) -> Result<Draft, String> {
        Draft::new(serde_json::from_str(json).unwrap()).map_err(|invalid| invalid.pointer)
    }

    #[test]
    fn a_chosen_id_is_a_uuid_of_version_7() {
        let with =
            |id: &str| draft(&format!(r#"{{"id":"{id}","metadata":"m","encryptionKey":"k"}}"#)).map(|draft| draft.id);
        assert!(with("01890a5d-ac96-774b-bcce-b302099a8057").is_ok_and(|id| id.is_some()));
        for bad in ["01890a5d-ac96-474b-bcce-b302099a8057", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(with(bad), Err("/id".to_owned()), "{bad}");
        }
    }
}
