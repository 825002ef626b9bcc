//! The sessions in which tasks work, and where a person has to answer.

use ensemble_account::Account;
use ensemble_types::ids::SessionId;
use ensemble_types::runs::Run;

use crate::failure::Result;
use crate::print;

/// Sessions that are named: each costs a request.
const NAMED: usize = 10;

/// Says in which session each of these tasks has worked, where that was one.
pub(crate) async fn sessions(me: &Account, run: &Run) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let tasks = tasks.iter().enumerate().filter(|(_, task)| task.asks_in().is_none());
    let worked: Vec<_> = tasks.filter_map(|(number, task)| Some((number, task, task.session_id?))).collect();
    for (number, task, session) in worked.iter().take(NAMED) {
        let named = reference(me, *session).await;
        print::line(format!("{} in session {named}: `ensemble attach {named}`", task.called(*number)))?;
    }
    if worked.len() > NAMED {
        print::line(format!(
            "{} more tasks worked in sessions: `ensemble sessions` lists them.",
            worked.len() - NAMED
        ))?;
    }
    Ok(())
}

/// What to type to answer it. A session that cannot be read now is named by its id.
pub(crate) async fn advice(me: &Account, session: SessionId) -> String {
    format!("`ensemble attach {}` answers it", reference(me, session).await)
}

async fn reference(me: &Account, session: SessionId) -> String {
    let named = me.client.session(session).await.map(|session| session.reference.to_string());
    named.unwrap_or_else(|_| session.to_string())
}
