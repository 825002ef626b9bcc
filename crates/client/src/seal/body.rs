//! What is inside a message, once it is opened.

use ensemble_types::ids::UserId;
use serde::{Deserialize, Serialize};

/// The plaintext of a message: a JSON object with at least a text.
///
/// `from` and `localId` repeat, under the seal, what the server says beside it, so that a reader can see when the
/// server shows a message twice or under another name. They are no proof against others who may write: all share
/// one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageBody {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_id: Option<String>,
}
