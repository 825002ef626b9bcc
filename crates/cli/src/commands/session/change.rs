//! `ensemble session rename`, `end`, `archive`, `rekey`, `delete`.

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::Named;
use ensemble_account::sharing::Members;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::Ref;
use ensemble_types::sessions::{Session, SessionStatus, UpdateSession};
use serde_json::json;

use super::list;
use crate::complete;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The new title; it is encrypted
    title: String,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

impl Rename {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        if self.title.trim().is_empty() {
            return Err(Failure::message("The title is empty."));
        }
        let id = self.session.find(me).await?;
        let session = me.rename_session(id, self.title).await?;
        say(context, me, &session, "Renamed").await
    }
}

impl Delete {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let id = self.session.find(me).await?;
        let reference = Ref::of(&id);
        if !self.yes {
            confirm::deletion(&format!("session {reference} with all its messages, for everyone"))?;
        }
        // One that stays is ended by the device that would answer it.
        let _later = me.end_invites(id).await;
        match me.client.delete_session(id).await {
            // It was deleted elsewhere. What is not finished of it ends here.
            Err(error) if error.is_not_found() && context.home.is_unfinished(me.place(), id)? => {}
            deleted => deleted?,
        }
        forget(context, me, id)?;
        if context.json {
            return print::json(&json!({ "success": true }), false);
        }
        print::line(format!("Deleted {reference}."))
    }
}

/// Forgets a session that was deleted.
pub(crate) fn forget(context: &Context, me: &Account, id: SessionId) -> Result<()> {
    context.home.forget_session(me.place(), id)?;
    context.home.forget_draft(id)?;
    me.forget_used_session(id);
    Ok(())
}

pub(super) async fn status(context: &Context, me: &Account, id: SessionId, status: SessionStatus) -> Result<()> {
    let done = if status == SessionStatus::Ended { "Ended" } else { "Reopened" };
    change(context, me, id, &UpdateSession { status: Some(status), ..UpdateSession::default() }, done).await
}

pub(super) async fn archived(context: &Context, me: &Account, id: SessionId, archived: bool) -> Result<()> {
    let done = if archived { "Archived" } else { "Unarchived" };
    change(context, me, id, &UpdateSession { archived: Some(archived), ..UpdateSession::default() }, done).await
}

pub(super) async fn rekey(context: &Context, me: &Account, id: SessionId) -> Result<()> {
    let session = me.session(id).await?;
    let session = me.rekey(session, &Members::default()).await?;
    if context.json {
        return list::print_opened(me, &session).await;
    }
    let session = session.reference;
    print::line(format!(
        "Session {session} has a new key. If it has a public link, that still has the old key: replace it with `ensemble share \
         link {session}`."
    ))
}

async fn change(context: &Context, me: &Account, id: SessionId, update: &UpdateSession, done: &str) -> Result<()> {
    let session = me.client.update_session(id, update).await?;
    say(context, me, &session, done).await
}

async fn say(context: &Context, me: &Account, session: &Session, done: &str) -> Result<()> {
    if context.json {
        return list::print_opened(me, session).await;
    }
    print::line(format!("{done} {}.", session.reference))
}
