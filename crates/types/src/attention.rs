//! What a hosted session wants from its people. Lists and notifications need it, so the server can read it; it does not say what is
//! asked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Blob;
use crate::time::Timestamp;

/// The first that applies of permission, question, failed and finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    #[default]
    None,
    /// The agent waits for a permission.
    Permission,
    /// The agent waits for an answer.
    Question,
    /// A turn has ended, and no person has looked since.
    Finished,
    Failed,
}

impl AttentionKind {
    pub const ALL: [Self; 5] = [Self::None, Self::Permission, Self::Question, Self::Finished, Self::Failed];

    /// Whether a person ends it by looking, and not by an answer.
    pub const fn ends_when_seen(self) -> bool {
        matches!(self, Self::Finished | Self::Failed)
    }
}

/// What a session wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attention {
    pub kind: AttentionKind,
    /// Open requests: 0 to 99.
    pub open: u8,
    /// When it began to want this. `null` while it wants nothing.
    pub since: Option<Timestamp>,
    /// Another one for each thing that it wants; it distinguishes notifications. `null` while it wants nothing.
    pub id: Option<String>,
}

/// Sets what a session wants.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetAttention {
    pub kind: AttentionKind,
    /// Open requests: 0 to 99, at least 1 of a permission or a question.
    #[serde(default)]
    #[schema(maximum = 99)]
    pub open: u8,
    /// 8 random bytes in base64url. Needed unless the kind is `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{11}$")]
    pub id: Option<Blob<11, 11>>,
}
