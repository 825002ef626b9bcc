//! `ensemble share`: gives other users access to sessions.

pub(crate) mod invite;
mod link;
mod open;
pub(crate) mod people;
mod users;

use clap::{Subcommand, ValueEnum};
use ensemble_types::ids::SessionId;
use ensemble_types::shares::ShareLevel;

use super::DONE;
use crate::commands::session::Which;
use crate::context::Context;
use crate::failure::Result;
pub(crate) use users::With;

#[derive(Debug, Subcommand)]
pub(crate) enum Share {
    /// Share a session with a user
    Add(users::Add),
    /// List the users with whom a session is shared
    #[command(visible_alias = "ls")]
    List(Which),
    /// Change the access of a user
    Change(users::Change),
    /// Let in those who wait to join by an invitation, or not
    Answer(Which),
    /// Remove a user's access to a session, and change its key
    #[command(visible_alias = "rm")]
    Remove(users::Remove),
    /// Create or replace the public link (the old one stops working)
    Link(link::Link),
    /// Delete the public link, and end all views of it
    Unlink(Which),
    /// Read a session through its public link
    Open(open::Open),
}

/// The access level of a user.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    /// Read
    View,
    /// Also write messages
    Edit,
    /// Also change the title, and share for viewing and editing
    Admin,
}

impl From<Level> for ShareLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::View => Self::View,
            Level::Edit => Self::Edit,
            Level::Admin => Self::Admin,
        }
    }
}

impl Share {
    pub(crate) async fn run(self, context: &Context) -> Result {
        // Opening a link needs no account.
        let command = match self {
            Self::Open(open) => return open.run(context).await.map(|()| DONE),
            command => command,
        };
        let me = context.me().await?;
        match command {
            Self::Add(command) => return command.run(context, &me).await,
            Self::List(which) => users::list(context, &me, which.session.find(&me).await?).await?,
            Self::Change(command) => return command.run(context, &me).await,
            Self::Answer(which) => return invite::answer_all(context, &me, which.session.find(&me).await?).await,
            Self::Remove(command) => return command.run(context, &me).await,
            Self::Link(command) => command.run(context, &me).await?,
            Self::Unlink(Which { session }) => unlink(context, &me, session.find(&me).await?).await?,
            Self::Open(_) => {}
        }
        Ok(DONE)
    }
}

async fn unlink(context: &Context, me: &ensemble_account::Account, session: SessionId) -> Result<()> {
    me.client.delete_link(session).await?;
    if context.json {
        return crate::print::json(&serde_json::json!({ "success": true }), false);
    }
    crate::print::line("The public link no longer works.")
}
