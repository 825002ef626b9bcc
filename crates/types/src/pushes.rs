//! Notifications that are pushed to devices (Web Push, RFC 8030, 8291 and 8292).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::text::{Blob, Text};

/// What a device is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PushKind {
    /// An agent has waited for a permission for ten seconds.
    Permission,
    /// An agent has waited for an answer for ten seconds.
    Question,
    /// A turn or a run has ended that took more than a minute.
    Finished,
    /// A turn or a run has failed.
    Failed,
    /// A machine went away in the middle of a turn.
    Away,
}

impl PushKind {
    pub const ALL: [Self; 5] = [Self::Permission, Self::Question, Self::Finished, Self::Failed, Self::Away];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Away => "away",
        }
    }
}

impl std::str::FromStr for PushKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or("is no kind of a notification")
    }
}

/// Where a device is reached, as `PushSubscription.toJSON()` of a browser gives it (W3C Push API).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushSubscription {
    /// An https address of a push service.
    pub endpoint: Text<1, 1024>,
    pub keys: PushKeys,
}

/// What notifications are encrypted to (RFC 8291).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushKeys {
    /// P-256, uncompressed, in base64url.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{87}$")]
    pub p256dh: Blob<87, 88>,
    /// 16 random bytes in base64url.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub auth: Blob<22, 24>,
}

/// The key that signs for this server at push services.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"publicKey": "BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-P0A"})))]
pub struct PushKey {
    /// The `applicationServerKey`: P-256, uncompressed, in base64url.
    pub public_key: String,
}

/// What a device is sent, encrypted, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushPayload {
    pub kind: PushKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Another one for each thing that people are notified of.
    pub attention: String,
}

/// 62 random bits in base64url, for an event that has no attention of its own.
pub fn new_attention() -> String {
    // Of version 7 the last 62 bits are random (RFC 9562, section 5.7).
    let id = crate::ids::TokenId::generate().uuid();
    let (_, last) = id.as_bytes().split_at(8);
    URL_SAFE_NO_PAD.encode(last)
}

/// A field that may be absent, `null` or a value.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}
