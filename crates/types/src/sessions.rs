//! Sessions: work on one machine, with sealed metadata, a sealed key and a history of messages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::attention::{Attention, SetAttention};
use crate::epochs::ContentEpoch;
use crate::examples;
use crate::ids::{MachineId, SessionId, UserId};
use crate::refs::Ref;
use crate::text::{Blob, Text};
use crate::time::Timestamp;

/// A session's metadata: at most 256 KiB, sealed.
pub type Metadata = Blob<1, 262_144>;
/// The agent's own state: at most 1 MiB, sealed.
pub type AgentState = Blob<1, 1_048_576>;
/// A key sealed to one user: at most 8 KiB.
pub type SealedKey = Blob<1, 8_192>;

/// What a caller may do with a session. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    View,
    Edit,
    Admin,
    Owner,
}

impl AccessLevel {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

/// Whether the owner has ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    Active,
    Ended,
}

/// Why the machine of a session cannot write in it now. The server gives it as the machine has said it: no signature covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CannotWrite {
    /// A device of the owner, or a share, was removed, and the server did not take the session's new key from the machine.
    KeyRefused,
    /// The session's newest key is not sealed to the machine.
    KeyNotGiven,
    /// The session's newest key was not made by a device of the owner.
    KeyOfStranger,
    /// The owner's device list, by which it would make a new key, cannot be used.
    ListUnread,
}

impl CannotWrite {
    pub const ALL: [Self; 4] = [Self::KeyRefused, Self::KeyNotGiven, Self::KeyOfStranger, Self::ListUnread];
}

/// The reason in an answer. A newer server may state one that is unknown here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StatedReason {
    Known(CannotWrite),
    Other(String),
}

/// Creates a session. The same `tag` again returns the same session. A machine's token creates sessions of its own machine, which
/// are `hosted`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "machineId": "laptop",
    "metadata": "AQAAAAFzZWFsZWQ",
    "encryptionKey": "AQAAAAFzZWFsZWQ",
    "tag": "project-1",
})))]
pub struct CreateSession {
    /// A UUID of version 7 that no session has. The service makes one when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SessionId>,
    /// One of the caller's machines, or absent for a session in which people only read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    pub metadata: Metadata,
    pub encryption_key: SealedKey,
    /// The content epoch in which `encryptionKey` was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Text<1, 128>>,
}

/// At least one field must be set.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"status": "ended"})))]
pub struct UpdateSession {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_state: Option<AgentState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SessionStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
    /// A new key, sealed to the owner. It increases `keyEpoch` and requires `expectedKeyEpoch`. The machine that hosts the session may
    /// give it one together with `hostKey`: then `rekeyNeeded` stays set, and is set when the session has shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<SealedKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_key_epoch: Option<i64>,
    /// The content epoch in which `encryptionKey` was sealed. Only together with it; a new key without it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
    /// The new key, sealed to the session's machine. Only together with `encryptionKey`, and only for a hosted session; a new key
    /// without it leaves the machine none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<SealedKey>,
    /// Set by the machine that hosts the session. Its owner can only set `finished` and `failed` to `none`, with `expectedVersion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<SetAttention>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<SessionHeartbeat>,
    /// Only for an update of exactly one versioned field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_metadata_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_agent_state_version: Option<i64>,
}

/// A heartbeat of the session's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionHeartbeat {
    /// Whether the program is working. Unchanged when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// Which process hosts the session: needed from its machine, and of no other caller. Another one is refused with LEASE_LOST
    /// while a beat of the first is fresh, unless it names the first in `previousHostId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<Uuid>,
    /// The process that this one continues. It has ended, so the new one does not have to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_host_id: Option<Uuid>,
    /// Only from the machine that hosts the session. A heartbeat without it says that the machine can write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_write: Option<CannotWrite>,
}

/// A session as this caller may see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::session())))]
pub struct Session {
    pub id: SessionId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub owner_id: UserId,
    /// `null` for a session without a machine.
    #[serde(default)]
    pub machine_id: Option<MachineId>,
    /// The machine made it with its own token, and may read and write it.
    #[serde(default)]
    pub hosted: bool,
    /// Only for the owner.
    #[serde(default)]
    pub tag: Option<String>,
    pub metadata: String,
    pub metadata_version: i64,
    /// Only for the owner.
    #[serde(default)]
    pub encryption_key: Option<String>,
    /// Only for the session's machine: the key, sealed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    pub agent_state: Option<String>,
    pub agent_state_version: i64,
    pub status: SessionStatus,
    pub ended_at: Option<Timestamp>,
    pub archived: bool,
    pub online: bool,
    pub thinking: bool,
    /// Absent while its machine can write in it, or is not online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CannotWrite>)]
    pub cannot_write: Option<StatedReason>,
    pub last_active_at: Option<Timestamp>,
    #[serde(default)]
    pub attention: Attention,
    /// Rises by one with each change of `attention`.
    #[serde(default)]
    pub attention_version: i64,
    /// The `seq` of the newest message, 0 when there is none.
    pub last_seq: i64,
    /// The session's own machine reads `edit`; it may change metadata and agent state as well.
    pub access_level: AccessLevel,
    /// The session's key, sealed to the caller.
    #[serde(default)]
    pub encrypted_key: Option<String>,
    /// The content epoch in which the caller's `encryptionKey` or `encryptedKey` was sealed, if its sealer said so.
    #[serde(default)]
    pub content_epoch: Option<ContentEpoch>,
    /// Starts at 1.
    pub key_epoch: i64,
    /// A user lost access after the key was last changed, so the owner should rotate it.
    pub rekey_needed: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A page of sessions, the most recently changed first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"sessions": [examples::session()], "nextCursor": null})))]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    pub next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_newer_server_is_kept_as_it_is() {
        let known = StatedReason::Known(CannotWrite::KeyRefused);
        for (text, reason) in [("key_refused", known), ("disk_full", StatedReason::Other("disk_full".to_owned()))] {
            assert_eq!(serde_json::from_value::<StatedReason>(text.into()).unwrap(), reason);
            assert_eq!(serde_json::to_value(&reason).unwrap(), text);
        }
        assert!(serde_json::from_value::<CannotWrite>("disk_full".into()).is_err(), "a machine states a known one");
    }
}
