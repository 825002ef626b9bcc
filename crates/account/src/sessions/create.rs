//! A new session, with a key and a title that are sealed for it alone.

use ensemble_client::idempotency_key;
use ensemble_protocol::seal::{Binding, KeyRing};
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::sessions::{CreateSession, Session};
use ensemble_types::text::Text;

use super::{Card, seal_ring};
use crate::account::Account;
use crate::error::{Error, Result};

impl Account {
    /// Makes a session of people. `false`: there was one with this tag.
    pub async fn create_session(
        &self,
        card: &Card,
        machine_id: Option<MachineId>,
        tag: Option<Text<1, 128>>,
    ) -> Result<(Session, bool)> {
        let (id, ring, is_tagged) = (SessionId::generate(), KeyRing::generate(), tag.is_some());
        let binding = Binding::Session { session: id, owner: self.id };
        let request = CreateSession {
            id: Some(id),
            machine_id,
            metadata: self.seal_metadata(&ring, (id, 1), card, (None, None))?.0,
            encryption_key: seal_ring(&ring, &self.content_key()?, binding, &self.key)?,
            content_epoch: self.content_epoch(),
            tag,
        };
        let (session, is_new) = self.client.create_session(&request, &idempotency_key()).await?;
        if session.id != id && (is_new || !is_tagged) {
            return Err(Error::OtherSession);
        }
        if is_new {
            self.home.remember_session(self.place(), &session, Some(&ring))?;
        }
        Ok((session, is_new))
    }
}
