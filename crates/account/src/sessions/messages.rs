//! The messages of a session in which people write to each other.

use ensemble_client::Window;
use ensemble_protocol::seal::{self, KeyRing, MessageBody, Purpose, SealError};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::{AppendMessage, Message};
use ensemble_types::sessions::Session;
use ensemble_types::text::Text;

use super::seal_json;
use crate::account::Account;
use crate::error::{Error, Result};

/// A session with the keys of its messages.
pub struct Messages {
    me: Account,
    pub session: Session,
    ring: KeyRing,
}

impl Account {
    /// The messages of a session, to read them.
    pub async fn messages(&self, session: Session) -> Result<Messages> {
        let (session, ring) = self.readable_so_far(session).await?;
        Ok(Messages { me: self.clone(), session, ring })
    }

    /// The same to write one. The session may get a new key first.
    pub async fn writable_messages(&self, id: SessionId) -> Result<Messages> {
        let (session, ring) = self.writable(id).await?;
        Ok(Messages { me: self.clone(), session, ring })
    }
}

impl Messages {
    pub fn open(&self, message: &Message) -> Result<MessageBody, SealError> {
        body(&self.ring, self.session.id, &message.content)
    }

    /// Reads the keys again, if they were changed before this message was sent.
    pub async fn renew_for(&mut self, message: &Message) -> Result<()> {
        if matches!(self.open(message), Err(SealError::UnknownEpoch(_))) {
            *self = self.me.messages(self.me.session(self.session.id).await?).await?;
        }
        Ok(())
    }

    /// Checks that any of the newest messages can be decrypted. If none can, the server may have sent the keys of another session.
    pub async fn check(&self) -> Result<()> {
        if self.session.last_seq == 0 {
            return Ok(());
        }
        let page = self.me.client.message_page(self.session.id, Window::default()).await?;
        if page.messages.is_empty() || page.messages.iter().any(|message| self.open(message).is_ok()) {
            return Ok(());
        }
        Err(Error::KeyFitsNothing)
    }

    /// Sends a text. `false`: a message with this id was sent before.
    pub async fn send(&self, text: String, local_id: Text<1, 128>) -> Result<(Message, bool)> {
        let id = self.session.id;
        let body = MessageBody { text, from: Some(self.me.id), local_id: Some(local_id.to_string()) };
        let content = seal_json(&self.ring, Purpose::Message(id), "message", &body)?;
        let message = AppendMessage { content, local_id, key_epoch: Some(self.ring.epoch().into()) };
        Ok(self.me.client.append_message(id, &message).await?)
    }
}

/// The text of a message. Content from older or other programs is shown unchanged.
pub(crate) fn body(ring: &KeyRing, session: SessionId, content: &str) -> Result<MessageBody, SealError> {
    let plaintext = seal::open(ring, Purpose::Message(session), content)?;
    Ok(serde_json::from_slice(&plaintext).unwrap_or_else(|_| MessageBody {
        text: String::from_utf8_lossy(&plaintext).into_owned(),
        from: None,
        local_id: None,
    }))
}
