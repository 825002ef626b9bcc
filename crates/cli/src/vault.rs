//! Encrypts and decrypts the contents of sessions, changes keys, and checks the keys of other users.

use ensemble_client::seal::{self, Binding, BoxPublicKey, KeyRing, MessageBody, Purpose, SealError, SharedRing};
use ensemble_client::{AccountKey, Window};
use ensemble_types::devices::Role;
use ensemble_types::ids::SessionId;
use ensemble_types::messages::Message;
use ensemble_types::problem::Code;
use ensemble_types::sessions::{AccessLevel, Session, UpdateSession};
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};

use crate::context::{Context, Me};
use crate::devices;
use crate::failure::{Failure, Result};
use crate::sharing::Use;

/// The decrypted metadata of a session. Unknown members are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Card {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    #[serde(flatten)]
    pub(crate) more: serde_json::Map<String, serde_json::Value>,
}

impl Me {
    /// The key to which everything of the account is sealed now.
    pub(crate) fn content_key(&self) -> Result<BoxPublicKey> {
        devices::public(&self.own.contents)
    }

    /// A ring that was sealed to the account in this or an earlier content epoch.
    pub(crate) fn open_ring(&self, sealed: &str, binding: Binding<'_>) -> seal::Result<KeyRing> {
        self.own.contents.open_with(|pair| seal::open_ring(sealed, pair, binding)).map(|signed| signed.ring)
    }

    /// Whether devices that were removed since could open this ring: it was sealed in an earlier content epoch, or by a device that
    /// is not listed any more. Everybody knows the content key, so a ring that opens with it proves nothing.
    pub(crate) fn is_stale(&self, session: &Session) -> bool {
        let newest = self.own.contents.pair(self.own.contents.epoch());
        let sealed = session.encryption_key.as_deref().filter(|_| session.access_level == AccessLevel::Owner);
        let binding = Binding::Session { owner: self.id };
        match (sealed, newest) {
            (Some(sealed), Ok(newest)) => match seal::open_ring(sealed, &newest, binding) {
                Ok(signed) => {
                    let maker = self.own.list.device(&signed.signer).map(|device| device.role);
                    !maker.is_some_and(Role::shares_sessions)
                }
                Err(_) => true,
            },
            _ => false,
        }
    }

    /// The keys of a session, for its owner or a user with a share.
    pub(crate) fn ring(&self, session: &Session) -> Result<KeyRing> {
        let opened = if session.access_level == AccessLevel::Owner {
            let sealed = session.encryption_key.as_deref().ok_or(SealError::Format);
            sealed.and_then(|sealed| self.open_ring(sealed, Binding::Session { owner: self.id }))
        } else {
            let shared = session.encrypted_key.as_deref().ok_or(SealError::Format).and_then(SharedRing::from_text);
            let open = |shared: &SharedRing| self.own.contents.open_with(|pair| shared.open(pair, session.id, self.id));
            shared.and_then(|shared| open(&shared)).map(|signed| signed.ring)
        };
        opened.map_err(|error| Failure::Seal(format!("The key of session {}", session.id), error))
    }

    /// The keys, if the newest of them is the current key for writing, and who gave them may give them.
    pub(crate) async fn writing_ring(&self, context: &Context, session: &Session) -> Result<KeyRing> {
        let ring = self.ring(session)?;
        let origin = self.client.origin();
        if ring.epoch() < context.home.known_epoch(origin, session.id)? {
            return Err(Failure::message(format!(
                "The server gave you an older key of session {} than it gave before, so nothing is written with it. If this \
                 stays so, do not trust this server.",
                session.reference
            )));
        }
        if i64::from(ring.epoch()) < session.key_epoch {
            return Err(Failure::message(format!(
                "The key of this session was changed, and you have not been given the new one yet. Ask its owner to run \
                 `ensemble session rekey {}`.",
                session.id
            )));
        }
        if session.access_level != AccessLevel::Owner {
            self.check_grant(context, session, Use::Write).await?;
        }
        context.home.remember_epoch(origin, session.id, ring.epoch())?;
        Ok(ring)
    }

    /// The keys for reading, if who gave them may give them.
    pub(crate) async fn reading_ring(&self, context: &Context, session: &Session) -> Result<KeyRing> {
        let ring = self.ring(session)?;
        if session.access_level != AccessLevel::Owner {
            self.check_grant(context, session, Use::Read).await?;
        }
        Ok(ring)
    }

    /// The session, with a new key if devices that were removed, or users who lost access, have the one that it had.
    pub(crate) async fn fresh(&self, context: &Context, session: Session) -> Result<Session> {
        let is_owner = session.access_level == AccessLevel::Owner;
        if is_owner && (session.rekey_needed || self.is_stale(&session)) {
            return self.rekey(context, &session).await;
        }
        Ok(session)
    }

    /// Begins a new epoch: creates a key for the owner and every user with a share.
    pub(crate) async fn rekey(&self, context: &Context, session: &Session) -> Result<Session> {
        const TRIES: usize = 3;
        let mut session = session.clone();
        for _ in 0..TRIES {
            let ring = self.writing_ring(context, &session).await?;
            let recipients = self.recipients(context, &session, &ring).await?;
            let ring = ring.next().map_err(|error| Failure::Seal("The key".to_owned(), error))?;
            context.home.begin_rekey(self.client.origin(), session.id, &recipients)?;
            let sealed = seal_ring(&ring, &self.content_key()?, Binding::Session { owner: self.id }, &self.key)?;
            let update = UpdateSession {
                encryption_key: Some(sealed),
                expected_key_epoch: Some(session.key_epoch),
                ..UpdateSession::default()
            };
            match self.client.update_session(session.id, &update).await {
                // Another program of the owner was faster. It may not have known of the removal.
                Err(error) if error.is(Code::VersionMismatch) => {
                    context.home.end_rekey(self.client.origin(), session.id)?;
                    session = self.client.session(session.id).await?;
                    if !session.rekey_needed && !self.is_stale(&session) {
                        return Ok(session);
                    }
                }
                changed => {
                    let changed = changed?;
                    self.pass_on(context, &changed, &ring, &recipients).await?;
                    context.home.end_rekey(self.client.origin(), session.id)?;
                    context.home.remember_epoch(self.client.origin(), session.id, ring.epoch())?;
                    return Ok(changed);
                }
            }
        }
        Err(Failure::message("Other programs of yours change the key of this session at the same time. Try again."))
    }
}

pub(crate) fn seal_ring(
    ring: &KeyRing,
    to: &BoxPublicKey,
    binding: Binding<'_>,
    signer: &AccountKey,
) -> Result<Blob<1, 8_192>> {
    let sealed =
        seal::seal_ring(ring, to, binding, signer).map_err(|error| Failure::Seal("The key".to_owned(), error))?;
    Blob::new(sealed).map_err(|_| Failure::Seal("The key".to_owned(), SealError::TooManyKeys))
}

/// Seals a value. `what` names it in messages.
pub(crate) fn seal_json<const MAX: usize>(
    ring: &KeyRing,
    purpose: Purpose<'_>,
    what: &str,
    value: &impl Serialize,
) -> Result<Blob<1, MAX>> {
    let sealed = seal::seal_json(ring, purpose, value).map_err(|error| Failure::Seal(format!("The {what}"), error))?;
    Blob::new(sealed).map_err(|_| {
        Failure::message(format!(
            "The {what} is too long: encrypted it has more than {MAX} bytes. Shorten or split it."
        ))
    })
}

/// The metadata of a session, or why it cannot be shown.
pub(crate) fn card(ring: &KeyRing, metadata: &str) -> Result<Card, SealError> {
    seal::open_json(ring, Purpose::SessionMetadata, metadata)
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

/// Whether any of the newest messages can be decrypted. If none can, the server may have sent the keys of another
/// session.
pub(crate) async fn check_keys(me: &Me, session: &Session, ring: &KeyRing) -> Result<()> {
    if session.last_seq == 0 {
        return Ok(());
    }
    let page = me.client.message_page(session.id, Window::default()).await?;
    let fits = |message: &Message| body(ring, session.id, &message.content).is_ok();
    if page.messages.is_empty() || page.messages.iter().any(fits) {
        return Ok(());
    }
    Err(Failure::message(
        "None of the newest messages opens with the key that the server gave for this session, so nothing was sent. \
         Either other programs wrote them, or the server gave you the wrong key. With --force it is sent all the same.",
    ))
}

#[cfg(test)]
mod tests {
    use ensemble_client::Client;
    use ensemble_client::seal::{BoxKeyPair, ContentRing};
    use ensemble_types::devices::{DeviceList, ListedDevice};
    use ensemble_types::refs::Ref;
    use ensemble_types::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::sharing::People;
    use ensemble_types::ids::UserId;

    fn listed(key: &AccountKey, role: Role) -> ListedDevice {
        let box_key = BoxKeyPair::of_device(key).unwrap().public().to_text();
        ListedDevice { key: key.public_key(), box_key, role, machine_id: None }
    }

    /// A user with a second device, which is linked.
    fn user(second: &AccountKey) -> Me {
        let (key, contents) = (AccountKey::generate(), ContentRing::generate());
        let list = DeviceList {
            account: key.public_key(),
            version: 1,
            prev: None,
            created: Timestamp::from_unix_seconds(0),
            content_epoch: 1,
            content_public_key: contents.public().unwrap().to_text(),
            devices: vec![listed(&key, Role::Primary), listed(second, Role::Linked)],
        };
        let list = devices::List::first(&devices::signed(&list, &key).unwrap(), &key.public_key()).unwrap();
        let client = Client::builder("http://127.0.0.1:9").build().unwrap();
        Me { client, key, id: UserId::generate(), own: devices::Own { list, contents }, people: People::default() }
    }

    fn session(me: &Me, sealed: &str) -> Session {
        let document = json!({
            "id": SessionId::generate(), "ref": Ref::generate(), "ownerId": me.id, "metadata": "", "metadataVersion": 1,
            "encryptionKey": sealed, "agentState": null, "agentStateVersion": 0, "status": "active", "endedAt": null,
            "archived": false, "online": false, "thinking": false, "lastActiveAt": null, "lastSeq": 0, "accessLevel": "owner",
            "keyEpoch": 1, "rekeyNeeded": false, "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_ring_is_stale_unless_a_listed_device_sealed_it_to_the_newest_content_key() {
        let (second, stranger) = (AccountKey::generate(), AccountKey::generate());
        let mut me = user(&second);
        let sealed = |me: &Me, signer: &AccountKey| {
            let binding = Binding::Session { owner: me.id };
            seal_ring(&KeyRing::generate(), &me.content_key().unwrap(), binding, signer).unwrap().into_string()
        };
        let (by_first, by_second) = (sealed(&me, &me.key), sealed(&me, &second));
        let stale = |me: &Me, sealed: &str| me.is_stale(&session(me, sealed));
        assert!(!stale(&me, &by_first) && !stale(&me, &by_second));
        // Everybody can seal to the content key.
        assert!(stale(&me, &sealed(&me, &stranger)));
        assert!(stale(&me, "AAAA"));
        // The second device is removed. It knows the new content key, and cannot sign for the account.
        let mut next = me.own.list.successor(Timestamp::from_unix_seconds(1));
        next.devices.retain(|device| device.key != second.public_key());
        let contents = me.own.contents.next().unwrap();
        next.content_epoch += 1;
        next.content_public_key = contents.public().unwrap().to_text();
        let list = me.own.list.next(&devices::signed(&next, &me.key).unwrap()).unwrap();
        me.own = devices::Own { list, contents };
        assert!(stale(&me, &by_first) && stale(&me, &by_second), "it knows these rings");
        assert!(me.ring(&session(&me, &by_second)).is_ok(), "what was written before can be read");
        assert!(stale(&me, &sealed(&me, &second)));
        assert!(!stale(&me, &sealed(&me, &me.key)));
    }
}
