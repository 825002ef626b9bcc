//! Messages: the encrypted, numbered history of a session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::{MachineId, MessageId, UserId};
use crate::text::{Blob, Text};
use crate::time::Timestamp;

/// A message to append. If the same sender sends the same `localId` again, the response is the first record.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"content": "AQAAAAFzZWFsZWQ", "localId": "c0ffee", "keyEpoch": 1})))]
pub struct AppendMessage {
    pub content: Blob<1, 1_048_576>,
    /// The sender's own id for the message.
    pub local_id: Text<1, 128>,
    /// The epoch of the key that seals the message. Required in hosted sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub key_epoch: Option<i64>,
}

/// 1 to 200 messages. Either all are stored or none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"messages": [
    {"content": "AQAAAAFzZWFsZWQ", "localId": "c0ffee", "keyEpoch": 1},
    {"content": "AQAAAAFzZWFsZWQ", "localId": "decaf", "keyEpoch": 1},
]})))]
pub struct AppendMessages {
    #[schema(min_items = 1, max_items = 200)]
    pub messages: Vec<AppendMessage>,
}

/// A message of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::message())))]
pub struct Message {
    pub id: MessageId,
    /// Position in the session: starts at 1 and has no gaps.
    pub seq: i64,
    pub local_id: String,
    pub content: String,
    pub sender_id: UserId,
    /// The machine that sent it with its own token, `senderId` being its owner; `null` for people.
    #[serde(default)]
    pub sender_machine_id: Option<MachineId>,
    pub key_epoch: Option<i64>,
    pub created_at: Timestamp,
}

/// The messages of a batch in the order of the request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"messages": [examples::message()]})))]
pub struct AppendedMessages {
    pub messages: Vec<Message>,
}

/// A part of the history.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::message_page())))]
pub struct MessagePage {
    pub messages: Vec<Message>,
    pub has_more: bool,
    /// Cursor for `before`: the page of older messages.
    pub next_before: Option<i64>,
    /// Cursor for `after`: the page of newer messages.
    pub next_after: Option<i64>,
    /// The `seq` of the newest message of the session, which need not be in the page. 0 when there is none.
    pub last_seq: i64,
}
