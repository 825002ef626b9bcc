//! The signed list of an account's devices, linking a device, and what the service keeps in addition. Keys, boxes, digests and signatures are
//! base64url without padding. docs/ENCRYPTION.md has the rules of the list; the crate `ensemble-protocol` checks them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

use crate::examples;
use crate::ids::{DeviceId, MachineId, UserId};
use crate::pushes::{PushKind, PushSubscription, present};
use crate::text::{Blob, Text, inline, json_text};
use crate::time::Timestamp;

/// What a device may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Signs in, signs commands and lists, and opens what is sealed to the account.
    Primary,
    /// The same without signing lists.
    Linked,
    /// A runner. It opens nothing that is sealed to the account.
    Machine,
    /// The words on paper: they sign lists and open what is sealed to the account.
    Recovery,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Primary, Self::Linked, Self::Machine, Self::Recovery];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Linked => "linked",
            Self::Machine => "machine",
            Self::Recovery => "recovery",
        }
    }

    /// Whether the content ring is sealed to devices with this role.
    pub const fn opens_contents(self) -> bool {
        !matches!(self, Self::Machine)
    }

    /// Whether a device with this role gives sessions and their keys to people.
    pub const fn shares_sessions(self) -> bool {
        matches!(self, Self::Primary | Self::Linked)
    }

    /// Whether a device with this role signs lists.
    pub const fn signs_lists(self) -> bool {
        matches!(self, Self::Primary | Self::Recovery)
    }
}

/// A device list as it is signed. `body` is never encoded again: signature and digest are over its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignedList {
    /// A [`DeviceList`] as JSON.
    #[schema(value_type = DeviceListText)]
    pub body: Text<1, 32_768>,
    /// The Ed25519 public key that signed it.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub signer: Blob<43, 43>,
    /// Ed25519 over `ensemble-devices-v1\n` and the bytes of `body`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{86}$")]
    pub signature: Blob<86, 86>,
}

/// The schema of the body of a list.
pub enum DeviceListText {}

json_text!(DeviceListText, DeviceList, 1, 32_768);

/// A key of a map: an Ed25519 public key.
pub enum PublicKeyText {}

impl ToSchema for PublicKeyText {}

impl PartialSchema for PublicKeyText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
        text.pattern(Some("^[A-Za-z0-9_-]{43}$")).extensions(Some(inline())).into()
    }
}

/// The body of a device list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceList {
    /// The Ed25519 public key of the account's first device, base64url without padding.
    #[schema(pattern = "^[A-Za-z0-9_-]{43}$")]
    pub account: String,
    /// 1 to 10,000.
    #[schema(minimum = 1, maximum = 10_000)]
    pub version: u32,
    /// SHA-256 of the body of the version before, base64url without padding; null in version 1.
    #[schema(pattern = "^[A-Za-z0-9_-]{43}$")]
    pub prev: Option<String>,
    /// By the clock of the signer, in RFC 3339, as in `2026-03-26T00:00:00Z`.
    pub created: Timestamp,
    /// Rises by one whenever a device that could open contents is gone.
    pub content_epoch: u32,
    /// The X25519 key of this epoch, to which contents are sealed.
    pub content_public_key: String,
    /// 1 to 64 entries.
    pub devices: Vec<ListedDevice>,
}

/// One device in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedDevice {
    /// Ed25519.
    pub key: String,
    /// X25519: what is for this device only is sealed to it.
    pub box_key: String,
    pub role: Role,
    /// Of a runner, and of nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// What its name is bound by: SHA-256 of `ensemble-device-name-v1\n`, the 16 bytes of the salt and the name in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_-]{43}$")]
    pub name: Option<String>,
    /// Of a machine: the key of the device that has registered it on its own computer. They are removed together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_-]{43}$")]
    pub by: Option<String>,
}

/// The name of a device, and what opens the commitment in the list. Only the account's own devices are given both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceName {
    /// 16 random bytes.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub salt: Blob<22, 22>,
    /// 1 to 64 bytes in NFC, without control, format and direction characters. Of a machine: `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: Text<1, 64>,
}

impl ListedDevice {
    /// Whether it may make keys of a session or of a machine: one of a person, or the machine whose session or key it is.
    pub fn makes_keys(&self, of: Option<&MachineId>) -> bool {
        self.role.shares_sessions() || (of.is_some() && self.machine_id.as_ref() == of)
    }
}

/// What a device is: as it said in its request for a link, or `cli` for the first device of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Cli,
    Web,
    Runner,
    Recovery,
}

impl DeviceKind {
    pub const ALL: [Self; 4] = [Self::Cli, Self::Web, Self::Runner, Self::Recovery];

    /// The kind on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Web => "web",
            Self::Runner => "runner",
            Self::Recovery => "recovery",
        }
    }
}

/// A device of the caller's account, with what the service keeps in addition to the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::device())))]
pub struct Device {
    pub id: DeviceId,
    /// As the service has it. It counts where it opens the commitment in the list.
    pub name: Option<String>,
    /// What opens the commitment, with the name.
    #[schema(pattern = "^[A-Za-z0-9_-]{22}$")]
    pub name_salt: Option<String>,
    pub kind: DeviceKind,
    pub role: Role,
    pub public_key: String,
    pub box_key: String,
    pub machine_id: Option<MachineId>,
    pub created_at: Timestamp,
    /// The last sign-in, to the minute.
    pub last_seen_at: Option<Timestamp>,
    /// It is the device that asks.
    pub current: bool,
    /// What it is notified of, if it has a push subscription.
    #[serde(default)]
    pub notify: Vec<PushKind>,
    /// Whether it has a push subscription.
    #[serde(default)]
    pub push: bool,
}

/// The caller's devices.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DevicePage, examples(json!({"devices": [examples::device()], "list": examples::signed_list(), "nextCursor": null})))]
pub struct Devices {
    /// The newest list. Absent until the account's first device has signed one.
    pub list: Option<SignedList>,
    pub devices: Vec<Device>,
    /// Always null: a list has at most 64 devices.
    pub next_cursor: Option<String>,
}

/// The content ring sealed to a device's box key.
pub type SealedContentRing = Blob<1, 8_192>;

/// The id of a linking: 64 random bits, and 64 that name the account.
pub type DeviceLinkId = Blob<22, 22>;

/// The next list of the caller's account, and the content ring for each device that may open contents. Or the lists that the service has
/// lost since a backup, with the rings of the last of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "list": {"body": "{\"account\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"version\":1,\"prev\":null,\"created\":\"2026-03-26T00:00:00.000Z\",\"contentEpoch\":1,\"contentPublicKey\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"devices\":[{\"key\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"boxKey\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"role\":\"primary\"}]}", "signer": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "signature": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw"},
    "sealed": {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8": "AQAAAAFzZWFsZWQ"},
    "names": {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8": {"salt": "AAECAwQFBgcICQoLDA0ODw", "name": "laptop"}},
})))]
pub struct ChangeDevices {
    /// The next list. Without it `lists` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<SignedList>,
    /// Instead of `list`, for a service that was restored from a backup: the lists that it lacks, the oldest first. Each is checked as if it
    /// came alone, and all are taken or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub lists: Vec<SignedList>,
    /// By the device's public key: exactly those whose role opens contents, in `list` or the last of `lists`.
    #[schema(value_type = BTreeMap<PublicKeyText, SealedContentRing>)]
    pub sealed: BTreeMap<String, SealedContentRing>,
    /// The linking that this list completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<CompletedDeviceLink>,
    /// By public key: the names of exactly those devices that have a `name` in `list`, or of some of those in the last of `lists`. Each opens
    /// its commitment, and no two are the same without regard to case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<PublicKeyText, DeviceName>)]
    pub names: BTreeMap<String, DeviceName>,
    /// By public key: the proof of possession of a key that the list adds. Ed25519 by that key over
    /// `ensemble-device-v1\n<account>\n<key>\n<boxKey>\n<role>`. Not for the account key, which signs the first list, and not for
    /// the device of `link`, which has signed its request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<PublicKeyText, Blob<86, 86>>)]
    pub proofs: BTreeMap<String, Blob<86, 86>>,
    /// With `lists`: the linkings that these lists have completed, in the place of `proofs` of their devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub links: Vec<PastDeviceLink>,
}

/// A linking that was completed, as the device that completed it has kept it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastDeviceLink {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub id: DeviceLinkId,
    pub request: DeviceLinkRequest,
}

/// The answer to a device that asked to be linked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletedDeviceLink {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub id: DeviceLinkId,
    /// Sealed with the secret of the link.
    pub answer: Blob<1, 2_048>,
}

/// The content ring for the calling device.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::content_ring())))]
pub struct DeviceContentRing {
    /// The version of the list that it came with.
    pub version: u32,
    pub content_epoch: u32,
    #[schema(value_type = String)]
    pub sealed: SealedContentRing,
}

/// Lists of an account, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"lists": [examples::signed_list()], "nextCursor": null})))]
pub struct DeviceListPage {
    pub lists: Vec<SignedList>,
    /// The `after` of the next page.
    pub next_cursor: Option<String>,
}

/// What to change of a device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"notify": ["permission", "finished"]})))]
pub struct UpdateDevice {
    /// Where the calling device is reached by notifications; `null` ends them.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PushSubscription>)]
    pub push_subscription: Option<Option<PushSubscription>>,
    /// What the calling device is notified of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 5)]
    pub notify: Option<Vec<PushKind>>,
}

/// A linking in progress. It ends after ten minutes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::created_device_link())))]
pub struct CreatedDeviceLink {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub id: DeviceLinkId,
    pub expires_at: Timestamp,
}

/// A new device asks to be linked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "publicKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "boxKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "name": "Ada's phone",
    "kind": "web",
    "mac": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "signature": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw",
})))]
pub struct DeviceLinkRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub public_key: Blob<43, 43>,
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub box_key: Blob<43, 43>,
    pub name: Text<0, 64>,
    pub kind: DeviceKind,
    /// Of a runner: the key of the device on whose computer it is, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub by: Option<Blob<43, 43>>,
    /// HMAC-SHA256 with a key that is derived from the secret of the link. Only the device that made the link can check it.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub mac: Blob<43, 43>,
    /// Ed25519 by `publicKey` over the same text.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{86}$")]
    pub signature: Blob<86, 86>,
}

/// How far a linking is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceLinkState {
    Waiting,
    Asked,
    Approved,
    Refused,
    Expired,
}

/// A linking. Only the account that made it sees who has asked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"state": "waiting"})))]
pub struct DeviceLink {
    pub state: DeviceLinkState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<DeviceLinkRequest>,
    /// When it is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The device asked through the loopback listener of an `ensemble up`, with a loopback `Host`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Another device asked with this link later, and was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// What the answer of a link says when it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLinkAnswer {
    pub user_id: UserId,
    /// The public key of the account's first device.
    pub account: String,
    pub version: u32,
    /// SHA-256 of the body of that version.
    pub digest: String,
}
