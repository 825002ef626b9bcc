//! `ensemble session create`: a session in which people write to each other.

use std::path::PathBuf;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::Card;
use ensemble_types::text::Text;

use super::list;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::home::host;
use crate::machines::Machines;
use crate::print;

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The title; it is encrypted
    #[arg(long, short)]
    title: Option<String>,
    /// The machine of the session [default: this one, if it is registered]
    #[arg(long, value_name = "NAME", add = complete::machines())]
    machine: Option<String>,
    /// The directory of the session; it is encrypted [default: the current one]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Create only once: the same tag again returns the same session. It is not encrypted
    #[arg(long)]
    tag: Option<String>,
}

impl Create {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        if self.title.as_ref().is_some_and(|title| title.trim().is_empty()) {
            return Err(Failure::message("The title is empty. Leave --title out for a session without one."));
        }
        // The session's path is on this machine, so no other one is chosen.
        let this = || Ok::<_, Failure>(me.this_machine()?);
        let machine_id = match &self.machine {
            Some(named) => Some(Machines::load(me).await?.find(named)?.clone()),
            None => this()?,
        };
        let tag = self.tag.map(Text::new).transpose();
        let tag = tag.map_err(|error| Failure::message(format!("The tag {error}.")))?;
        let path = self.path.or_else(|| std::env::current_dir().ok());
        let card = Card {
            title: self.title,
            path: path.map(|path| path.display().to_string()),
            host: Some(host()),
            ..Card::default()
        };
        let (session, is_new) = me.create_session(&card, machine_id, tag).await?;
        me.use_session(&session);
        if context.json {
            return list::print_opened(me, &session).await;
        }
        print::line(session.reference.to_string())?;
        if !is_new {
            print::note("A session with this tag already exists. This is its ref.");
        }
        Ok(())
    }
}
