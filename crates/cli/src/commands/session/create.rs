//! `ensemble session create`: creates a key, seals the metadata with it, and seals the key to the caller.

use std::path::PathBuf;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::{Card, seal_ring};
use ensemble_client::idempotency_key;
use ensemble_protocol::seal::{Binding, KeyRing, Metadata, SealError, seal_metadata};
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::CreateSession;
use ensemble_types::text::{Blob, Text};

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
        let this = || Ok::<_, Failure>(context.home.settings()?.machines.remove(me.client.origin()));
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
        let ring = KeyRing::generate();
        let is_tagged = tag.is_some();
        // Its key and its title are sealed for this session only.
        let id = SessionId::generate();
        let body = serde_json::to_string(&card).map_err(|error| Failure::message(format!("The title {error}.")))?;
        let metadata = Metadata { body, user: me.id, admin: None, of_machine: None };
        let metadata = seal_metadata(&ring, (id, 1), metadata, &me.key).map_err(|error| match error {
            SealError::TooLong => Failure::message("The title is too long. Shorten it."),
            error => Failure::Seal("The title".to_owned(), error),
        })?;
        let request = CreateSession {
            id: Some(id),
            machine_id,
            metadata: Blob::new(metadata).map_err(|_| Failure::message("The title is too long. Shorten it."))?,
            encryption_key: seal_ring(
                &ring,
                &me.content_key()?,
                Binding::Session { session: id, owner: me.id },
                &me.key,
            )?,
            content_epoch: me.content_epoch(),
            tag,
        };
        let (session, created) = me.client.create_session(&request, &idempotency_key()).await?;
        if session.id != id && (created || !is_tagged) {
            return Err(Failure::message(
                "The server made another session than the one that was asked for. Do not trust it.",
            ));
        }
        if created {
            context.home.remember_session(me.client.origin(), &session, Some(&ring))?;
        }
        context.home.use_session(me, &session);
        if context.json {
            return list::print_opened(me, &session).await;
        }
        print::line(session.reference.to_string())?;
        if !created {
            print::note("A session with this tag already exists. This is its ref.");
        }
        Ok(())
    }
}
