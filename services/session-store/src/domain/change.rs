//! A change of a session: parsed once, so that one that contradicts itself does not exist.

use ensemble_types::sessions::{AccessLevel, SessionHeartbeat, SessionStatus, UpdateSession};

use super::Invalid;

/// At least one change, and what each of them expects.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) metadata: Option<Versioned>,
    pub(crate) agent_state: Option<Versioned>,
    pub(crate) status: Option<SessionStatus>,
    pub(crate) archived: Option<bool>,
    pub(crate) key: Option<Versioned>,
    pub(crate) heartbeat: Option<SessionHeartbeat>,
}

/// A value that counts its changes.
#[derive(Debug)]
pub(crate) struct Versioned {
    pub(crate) value: String,
    /// The version that this is to replace; any when absent.
    pub(crate) expected: Option<i64>,
}

impl Change {
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
            let detail = "goes with a change of exactly one of metadata and agentState";
            return Err(Invalid::new("/expectedVersion", detail));
        }
        for (field, expects, changes) in [
            ("Metadata", expected_metadata_version.is_some(), metadata.is_some()),
            ("AgentState", expected_agent_state_version.is_some(), agent_state.is_some()),
        ] {
            if expects && !changes {
                let pointer = format!("/expected{field}Version");
                return Err(Invalid::new(pointer, "expects the version of a field that is not changed"));
            }
            if expects && expected_version.is_some() {
                return Err(Invalid::new(
                    "/expectedVersion",
                    format!("says the same as expected{field}Version; send one"),
                ));
            }
        }
        if encryption_key.is_some() != expected_key_epoch.is_some() {
            return Err(Invalid::new("/expectedKeyEpoch", "goes with encryptionKey, and encryptionKey with it"));
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
        if change.is_quiet() && change.heartbeat.is_none() {
            return Err(Invalid::new("", "must change at least one field"));
        }
        Ok(change)
    }

    /// What the caller has to be for all of it.
    pub(crate) fn needs(&self) -> AccessLevel {
        if self.status.is_some() || self.archived.is_some() || self.key.is_some() {
            AccessLevel::Owner
        } else if self.metadata.is_some() || self.agent_state.is_some() {
            AccessLevel::Admin
        } else {
            AccessLevel::Edit
        }
    }

    /// Nothing but a heartbeat: it counts as no update of the session.
    pub(crate) fn is_quiet(&self) -> bool {
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

    fn change(json: &str) -> Result<Change, String> {
        Change::new(serde_json::from_str(json).unwrap()).map_err(|invalid| invalid.pointer)
    }

    #[test]
    fn a_contradiction_is_told_by_its_field() {
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
    fn the_most_demanding_field_decides() {
        for (json, needs) in [
            (r#"{"heartbeat":{}}"#, AccessLevel::Edit),
            (r#"{"heartbeat":{},"metadata":"a","expectedVersion":1}"#, AccessLevel::Admin),
            (r#"{"metadata":"a","status":"ended"}"#, AccessLevel::Owner),
        ] {
            assert_eq!(change(json).unwrap().needs(), needs, "{json}");
        }
    }
}
