//! What a voice session is and may become. No I/O and no clock: `now` is an argument everywhere.

pub(crate) mod announcement;
pub(crate) mod caller;
pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod due_action;
pub(crate) mod endpoint;
pub(crate) mod history;
pub(crate) mod limits;
mod live;
pub(crate) mod observation;
pub(crate) mod outbox;
pub(crate) mod packet;
pub(crate) mod session;
pub(crate) mod start_token;
pub(crate) mod state;
pub(crate) mod tool_bridge;
pub(crate) mod tool_call;
pub(crate) mod webhook;
