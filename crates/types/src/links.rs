//! Public links: read access to a session for everyone who has the link.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::{MessageId, SessionId};
use crate::sessions::{SealedKey, SessionStatus};
use crate::time::Timestamp;

/// Creates the session's link or replaces it. The token of a replaced link stops working.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"maxUses": 10})))]
pub struct CreateLink {
    /// In the future, at most one year (366 days) ahead. Without it the link does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// 1 to 1,000,000 viewings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_uses: Option<i64>,
    /// The session's key, sealed with the secret in the link's fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted_key: Option<SealedKey>,
}

/// A link. The token is shown only in this response.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::link())))]
pub struct Link {
    /// A secret. Give it only to the people who may open the link.
    pub token: String,
    pub url: String,
    pub expires_at: Option<Timestamp>,
    pub max_uses: Option<i64>,
    pub uses: i64,
    pub created_at: Timestamp,
}

/// The session's link without its token and its address, which only the answer to its creation has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::link_state())))]
pub struct LinkState {
    pub expires_at: Option<Timestamp>,
    pub max_uses: Option<i64>,
    pub uses: i64,
    pub created_at: Timestamp,
    /// The session's key epoch when the link was made: the link opens no message of a later one. `null`: not known.
    pub key_epoch: Option<i64>,
}

/// What a viewer of the link sees.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::public_view())))]
pub struct PublicView {
    pub session: PublicSession,
    /// `view`.
    pub access_level: String,
    /// The session's key, sealed with the secret in the link's fragment.
    pub encrypted_key: Option<String>,
    pub messages: Vec<PublicMessage>,
    pub has_more: bool,
    pub next_before: Option<i64>,
    pub next_after: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub remaining_uses: Option<i64>,
    /// Send it back as `X-View-Token`: further pages, a reload and the stream then do not count as another use.
    pub view_token: String,
}

/// A session without the fields that only its owner may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublicSession {
    pub id: SessionId,
    pub metadata: String,
    pub metadata_version: i64,
    pub status: SessionStatus,
    /// A machine made the session with its own token.
    #[serde(default)]
    pub hosted: bool,
    /// The `seq` of the newest message of the session, which need not be in the page. 0 when there is none.
    pub last_seq: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A message without its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublicMessage {
    pub id: MessageId,
    pub seq: i64,
    pub content: String,
    pub key_epoch: Option<i64>,
    pub created_at: Timestamp,
}
