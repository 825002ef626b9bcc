//! `ensemble session`: encrypted sessions, from creation to deletion.

pub(crate) mod change;
mod create;
mod list;
mod messages;
mod start;

use clap::{Args, Subcommand};
use ensemble_account::sessions::Named;
use ensemble_types::sessions::SessionStatus;

pub(crate) use self::start::{START_TITLE, Start};
use super::DONE;
use crate::complete;
use crate::context::Context;
use crate::failure::Result;

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Create a session
    #[command(visible_alias = "new")]
    Create(create::Create),
    /// Start a live session with an agent on one of your machines
    Start(start::Start),
    /// List sessions, the most recently changed first
    #[command(visible_alias = "ls")]
    List(list::List),
    /// Show a session
    Show(Which),
    /// Send a message
    Send(messages::Send),
    /// Read the messages (also: messages)
    #[command(alias = "messages")]
    Read(messages::Read),
    /// Show new messages as they arrive
    Follow(messages::Follow),
    /// Change the title
    Rename(change::Rename),
    /// End a session: lists leave it out. It can still be read and written, and opened again
    End(Which),
    /// Make an ended session active again
    Reopen(Which),
    /// Archive a session
    Archive(Which),
    /// Take a session out of the archive
    Unarchive(Which),
    /// Change the key, so that users who lost access cannot read new messages
    Rekey(Which),
    /// Delete a session for everyone, with all its messages, also from the disk of its machine
    #[command(visible_alias = "rm")]
    Delete(change::Delete),
}

/// A session.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    pub(crate) session: Named,
}

impl Session {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        match self {
            Self::Create(command) => command.run(context, &me).await?,
            Self::Start(command) => return command.run(context, &me).await,
            Self::List(command) => command.run(context, &me).await?,
            Self::Show(which) => list::show(context, &me, which.session.find(&me).await?).await?,
            Self::Send(command) => command.run(context, &me).await?,
            Self::Read(command) => command.run(context, &me).await?,
            Self::Follow(command) => command.run(context, &me).await?,
            Self::Rename(command) => command.run(context, &me).await?,
            Self::End(which) => {
                change::status(context, &me, which.session.find(&me).await?, SessionStatus::Ended).await?
            }
            Self::Reopen(which) => {
                change::status(context, &me, which.session.find(&me).await?, SessionStatus::Active).await?
            }
            Self::Archive(which) => change::archived(context, &me, which.session.find(&me).await?, true).await?,
            Self::Unarchive(which) => change::archived(context, &me, which.session.find(&me).await?, false).await?,
            Self::Rekey(which) => change::rekey(context, &me, which.session.find(&me).await?).await?,
            Self::Delete(command) => command.run(context, &me).await?,
        }
        Ok(DONE)
    }
}
