//! Live frames: the newest end of a text while an agent writes it. They are sealed, passed on to those who follow the session, and
//! not stored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::SessionId;
use crate::text::Blob;

/// A frame of a session. Also the data of the event `live`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveFrame {
    pub session_id: SessionId,
    /// Sealed: at most 16 KiB.
    pub content: Blob<1, 16_384>,
}

/// 1 to 64 frames of sessions that the caller's machine hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({ "frames": [{ "sessionId": "01932b5e-7b1a-7c3e-8f00-000000000001", "content": "AQAAAAFzZWFsZWQ" }] })))]
pub struct LiveFrames {
    #[schema(min_items = 1, max_items = 64)]
    pub frames: Vec<LiveFrame>,
}

/// What became of the frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"dropped": []})))]
pub struct LiveFramesSent {
    /// Sessions with frames that were not passed on, because there were more than 5 within a second.
    pub dropped: Vec<SessionId>,
}
