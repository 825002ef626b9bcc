//! Signs commands of a person and sends them to a session.

use std::sync::Arc;
use std::time::Duration;

use ensemble_client::idempotency_key;
use ensemble_protocol::seal::{self, Purpose};
use ensemble_protocol::transcript::Envelope;
use ensemble_protocol::transcript::body::{Content, Control, Message as Said, Prompt};
use ensemble_protocol::transcript::words::{May, When};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::AppendMessage;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};

use super::names;
use super::owner::Owner;
use crate::account::Account;
use crate::error::{Error, Result};

/// Signs and sends commands to a session.
#[derive(Clone)]
pub struct Sender {
    pub(super) me: Account,
    pub(super) session: SessionId,
    pub(super) owner: Arc<Owner>,
}

impl Sender {
    /// Sends a prompt for the next turn.
    pub async fn prompt(&self, text: impl Into<String>) -> Result<()> {
        let prompt = Prompt { text: text.into(), attachments: Vec::new(), when: When::Next, directory: None };
        self.send(Content::Prompt(prompt)).await.map(drop)
    }

    /// Signs and sends a command. Returns its `localId` and its `seq`.
    pub async fn send(&self, content: Content) -> Result<(String, i64)> {
        self.send_as(idempotency_key(), content).await
    }

    /// The same with a `localId` that the caller has chosen.
    pub async fn send_as(&self, local_id: String, content: Content) -> Result<(String, i64)> {
        const TRIES: usize = 3;
        let list = self.owner.named().await;
        // A device that is not in the list which the message names must not read it.
        if !self.owner.is(self.me.id) {
            self.me.people.forget_older(self.owner.user(), list.version);
        } else if list.version > self.me.own().list.version() {
            self.me.refresh_own(Duration::ZERO).await?;
        }
        let takes_away = matches!(&content, Content::Control(Control::Access(grant)) if grant.may == May::Nothing);
        let said = Said { local_id: local_id.clone(), at: self.me.client.now(), list, n: None, content };
        let body = said.write().map_err(|error| Error::NotSent(error.to_string()))?;
        let envelope = Envelope::sign(self.session, self.me.id, body, self.me.key.signing_key());
        let text = envelope.and_then(|envelope| envelope.write());
        let text = text.map_err(|error| Error::NotSent(error.to_string()))?;
        for _ in 0..TRIES {
            let (session, ring) = if takes_away {
                self.me.writable_despite_removal(self.session).await?
            } else {
                self.me.writable(self.session).await?
            };
            let sealed = seal::seal(&ring, Purpose::Message(self.session), &text)
                .map_err(|error| Error::Seal("The message".to_owned(), error))?;
            let message = AppendMessage {
                content: Blob::new(sealed).map_err(|_| Error::TooLongToSend)?,
                local_id: Text::new(local_id.clone()).map_err(|error| Error::NotSent(format!("its id {error}")))?,
                key_epoch: Some(ring.epoch().into()),
            };
            match self.me.client.append_message(self.session, &message).await {
                Err(error) if error.is(Code::KeyEpochOld) => {}
                sent => {
                    let seq = sent?.0.seq;
                    if let Content::Prompt(prompt) = &said.content {
                        names::give_title(&self.me, &session, &ring, &prompt.text).await;
                    }
                    return Ok((local_id, seq));
                }
            }
        }
        Err(Error::KeyChanges)
    }
}
