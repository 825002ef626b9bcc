//! Private shares: which other users have access to a session, and at which level.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::epochs::ContentEpoch;
use crate::examples;
use crate::ids::{SessionId, UserId};
use crate::sessions::SealedKey;
use crate::time::Timestamp;

/// What a share allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareLevel {
    /// May read.
    View,
    /// May also append messages and send heartbeats.
    Edit,
    /// May also change metadata and agent state, and manage view and edit shares.
    Admin,
}

impl ShareLevel {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
        }
    }
}

/// Shares a session with a user, or replaces the existing share.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "userId": "01932b5e-7b1a-7c3e-8f00-000000000002",
    "accessLevel": "edit",
    "encryptedKey": "AQAAAAFzZWFsZWQ",
})))]
pub struct CreateShare {
    pub user_id: UserId,
    pub access_level: ShareLevel,
    /// The session's key, sealed to that user.
    pub encrypted_key: SealedKey,
    /// The recipient's content epoch in which `encryptedKey` was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
}

/// At least one field must be set.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"accessLevel": "view"})))]
pub struct UpdateShare {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_level: Option<ShareLevel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted_key: Option<SealedKey>,
    /// The recipient's content epoch in which `encryptedKey` was sealed. Only together with it; a new key without it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_epoch: Option<ContentEpoch>,
}

/// One user's access to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::share())))]
pub struct Share {
    pub session_id: SessionId,
    pub user_id: UserId,
    pub access_level: ShareLevel,
    pub encrypted_key: String,
    #[serde(default)]
    pub content_epoch: Option<ContentEpoch>,
    /// The version of the user's newest device list, where shares are listed. Null when it is not known now.
    #[serde(default)]
    pub list_version: Option<u32>,
    pub shared_by: UserId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A page of shares, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"shares": [examples::share()], "nextCursor": null})))]
pub struct SharePage {
    pub shares: Vec<Share>,
    pub next_cursor: Option<String>,
}
