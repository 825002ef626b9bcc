//! Tasks whose agent waits for an answer of a person, and the session where that is given.

use ensemble_types::ids::SessionId;
use ensemble_types::runs::{Task, TaskStatus, WaitingFor};

use crate::context::Me;

/// The session of a task that waits for a person.
pub(crate) fn session_of(task: &Task) -> Option<SessionId> {
    let asks = task.status == TaskStatus::Running && task.waiting_for == Some(WaitingFor::Input);
    task.session_id.filter(|_| asks)
}

/// What to type to answer it. A session that cannot be read now is named by its id.
pub(crate) async fn advice(me: &Me, session: SessionId) -> String {
    let named = me.client.session(session).await.map(|session| session.reference.to_string());
    format!("`ensemble attach {}` answers it", named.unwrap_or_else(|_| session.to_string()))
}
