//! The decrypted content of a message.

use ensemble_types::ids::UserId;
use serde::{Deserialize, Serialize};

/// The plaintext of a message: a JSON object with at least a text.
///
/// `from` and `localId` repeat what the server says about the message, so that a reader can detect a repeated or
/// reattributed message. They do not protect against other users with write access, because all share one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageBody {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_id: Option<String>,
}
