//! A change of a session, and the access level that each change needs. Parsing refuses changes that contradict
//! themselves, so later code need not check again.

use ensemble_types::sessions::{AccessLevel, SessionHeartbeat, SessionStatus, UpdateSession};

use super::Invalid;

/// At least one change, and the versions that the caller expects.
#[derive(Debug)]
pub(crate) struct SessionChange {
    pub(crate) metadata: Option<Versioned>,
    pub(crate) agent_state: Option<Versioned>,
    pub(crate) status: Option<SessionStatus>,
    pub(crate) archived: Option<bool>,
    pub(crate) key: Option<Versioned>,
    pub(crate) heartbeat: Option<SessionHeartbeat>,
}

/// A new value for a field that has a version.
#[derive(Debug)]
pub(crate) struct Versioned {
    pub(crate) value: String,
    /// The version that this replaces. Without it, any version is replaced.
    pub(crate) expected: Option<i64>,
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
            heartbeat,
            expected_version,
            expected_metadata_version,
            expected_agent_state_version,
        } = update;
        if expected_version.is_some() && metadata.is_some() == agent_state.is_some() {
            let detail = "requires a change of exactly one of metadata and agentState";
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
        if encryption_key.is_some() != expected_key_epoch.is_some() {
            return Err(Invalid::new("/expectedKeyEpoch", "and encryptionKey must be sent together"));
        }
        let change = Self {
            metadata: metadata.map(|value| Versioned {
                value: value.into_string(),
                expected: expected_metadata_version.or(expected_version),
            }),
            agent_state: agent_state.map(|value| Versioned {
                value: value.into_string(),
                expected: expected_agent_state_version.or(expected_version),
            }),
            key: encryption_key.map(|key| Versioned { value: key.into_string(), expected: expected_key_epoch }),
            status,
            archived,
            heartbeat,
        };
        if change.is_heartbeat_only() && change.heartbeat.is_none() {
            return Err(Invalid::new("", "must change at least one field"));
        }
        Ok(change)
    }

    /// The access level that all of the change together requires.
    pub(crate) fn required_level(&self) -> AccessLevel {
        if self.status.is_some() || self.archived.is_some() || self.key.is_some() {
            AccessLevel::Owner
        } else if self.metadata.is_some() || self.agent_state.is_some() {
            AccessLevel::Admin
        } else {
            AccessLevel::Edit
        }
    }

    /// A heartbeat alone does not change `updatedAt` and is not sent to streams.
    pub(crate) fn is_heartbeat_only(&self) -> bool {
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
            assert_eq!(change(json).unwrap().required_level(), level, "{json}");
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
            assert_eq!(change.required_level(), level, "{json}");
            assert!(!change.is_heartbeat_only(), "{json}");
        }
        assert!(change(r#"{"heartbeat":{}}"#).unwrap().is_heartbeat_only());
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
}
