//! Looks: what a device asks a machine, and what the machine answers. Both are sealed, passed on, and not stored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{LookId, MachineId, SessionId};
use crate::text::Blob;

/// A sealed question: at most 16 KiB.
pub type LookQuestion = Blob<1, 16_384>;
/// A sealed answer: at most 1 MiB.
pub type LookAnswer = Blob<1, 1_048_576>;

/// A question to the machine that hosts a session, or to a machine of the caller: one of the two ids.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"sessionId": "01932b5e-7b1a-7c3e-8f00-000000000001", "question": "AQAAAAFzZWFsZWQ"})))]
pub struct AskLook {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    pub question: Blob<1, 16_384>,
}

/// What the machine has answered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"answer": "AQAAAAFzZWFsZWQ"})))]
pub struct LookAnswered {
    /// Sealed to the device that has asked.
    pub answer: Blob<1, 1_048_576>,
}

/// Answers a question.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"answer": "AQAAAAFzZWFsZWQ"})))]
pub struct AnswerLook {
    /// Sealed to the device that has asked.
    pub answer: Blob<1, 1_048_576>,
}

/// The answer is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"taken": true})))]
pub struct LookAnswerTaken {
    pub taken: bool,
}

/// The data of the event `look`: a question to the machine that reads the stream. It goes by what is signed in it, and not by
/// `sessionId`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LookAsked {
    pub id: LookId,
    pub question: Blob<1, 16_384>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}
