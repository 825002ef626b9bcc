//! Machines: the computers on which a user's agents run. The owner seals the data that describes them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::epochs::ContentEpoch;
use crate::examples;
use crate::free::FreeObject;
use crate::ids::MachineId;
use crate::refs::Ref;
use crate::text::Blob;
use crate::time::Timestamp;

/// The machine's current activity as reported by its runner: a free object of at most 16 KiB.
pub type Activity = FreeObject<16_384>;

/// Registers a machine. If the caller already owns this id, the response is the stored record, unchanged.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"id": "laptop", "metadata": "AQAAAAFzZWFsZWQ", "encryptionKey": "AQAAAAFzZWFsZWQ"})))]
pub struct RegisterMachine {
    /// Sealed by the owner.
    pub metadata: Blob<1, 262_144>,
    /// The machine's key, sealed to the owner.
    pub encryption_key: Blob<1, 8_192>,
    /// The content epoch in which `encryptionKey` was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
    /// The service creates one when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MachineId>,
}

/// The newest device list of its owner that a machine obeys, as the machine says. docs/ENCRYPTION.md has what is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!(examples::seen_list())))]
pub struct SeenList {
    /// The version of the list.
    #[schema(minimum = 1)]
    pub version: u32,
    /// SHA-256 of the list's body, base64url.
    pub digest: Blob<43, 43>,
    /// Ed25519, by the machine's key in that list, base64url.
    pub sig: Blob<86, 86>,
}

/// At least one of `metadata`, `daemonState`, `activity`, `encryptionKey` and `seen`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"activity": {"load": 0.2}})))]
pub struct UpdateMachine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Blob<1, 262_144>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_state: Option<Blob<1, 262_144>>,
    /// A new key, sealed to the owner. Not with a machine's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<Blob<1, 8_192>>,
    /// The content epoch in which `encryptionKey` was sealed. Only together with it; a new key without it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
    /// The heartbeat sets `lastActiveAt` and changes no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Sent when the list that the machine obeys has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenList>,
    /// `false` with `activity`: the runner ends, and the machine is offline until the next heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Only for an update of exactly one versioned field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_metadata_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_daemon_state_version: Option<i64>,
}

/// One of the caller's machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::machine())))]
pub struct Machine {
    pub id: MachineId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub metadata: String,
    pub metadata_version: i64,
    pub encryption_key: String,
    #[serde(default)]
    pub content_epoch: Option<ContentEpoch>,
    pub daemon_state: Option<String>,
    pub daemon_state_version: i64,
    pub activity: Option<Activity>,
    #[serde(default)]
    pub seen: Option<SeenList>,
    /// Whether the machine sent a heartbeat recently, and has not said since that it ends.
    pub online: bool,
    pub last_active_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A page of machines, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"machines": [examples::machine()], "nextCursor": null})))]
pub struct MachinePage {
    pub machines: Vec<Machine>,
    pub next_cursor: Option<String>,
}
