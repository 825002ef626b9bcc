//! The next key of a session.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_protocol::seal::{self, Binding, BoxPublicKey, KeyRing};
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::sessions::{Metadata, Session, UpdateSession};
use ensemble_types::text::Blob;

use super::{Due, host_of, seal_ring};
use crate::account::Account;
use crate::devices::seconds;
use crate::error::{Error, Result};
use crate::notice::Notice;
use crate::sharing::Members;

impl Account {
    /// Makes the key after the epoch `replaced`, unless another program has. `is_wanted`: a person wants it, so it waits for no hour.
    pub(super) async fn next_key(
        &self,
        mut session: Session,
        members: &Members,
        (mut replaced, is_wanted): (u32, bool),
    ) -> Result<(Session, KeyRing)> {
        const TRIES: usize = 3;
        let place = self.place();
        // The key that was to be above lost ones. The server may have taken some of the keys before it.
        let mut least = 0;
        for _ in 0..TRIES {
            let removed = self.home.removed_shares(place, session.id)?;
            let (old, known);
            (session, old, known) = self.newest(session).await?;
            // The faster program may not have known of the removals.
            let has_no_removal = members.is_empty() && removed.is_empty();
            let due = self.due(&session)?;
            let lost = known.lost(&old);
            let is_behind = lost > 0 || old.epoch() < least;
            if old.epoch() > replaced && has_no_removal && due.is_none() && !is_behind {
                return Ok((session, old));
            }
            // A person's removal waits for no hour, and neither does another key in the place of one that was used here: a server cannot show
            // it again once it is replaced, as it can show an old ring.
            let may_wait = old.epoch() < known.epoch && !is_wanted && has_no_removal;
            if lost > 0 && may_wait && least == 0 && !known.may_replace_lost(seconds()) {
                return Err(Error::OlderKey(session.reference));
            }
            let recipients = self.recipients(&session, &old, members).await?;
            let unfinished = self.home.unfinished(place, session.id)?;
            // Who waits for a lost key still does if the server has only hidden it.
            let before = if lost > 0 { unfinished } else { unfinished.and_then(|unfinished| unfinished.of(&old)) };
            let Ok((between, ring)) = next_above(&old, known.epoch) else {
                return Err(Error::NoKeyLeft(session.reference));
            };
            let (metadata, seen) = self.title_for_new_key(&session, (&old, &ring)).await?.unzip();
            self.home.begin_rekey(place, session.id, &ring, &recipients, before.clone())?;
            // A removal of one's own is known without the server.
            let is_asked = due == Some(Due::Asked) && has_no_removal && members.renewed.is_empty();
            self.home.note_cause(place, session.id, ring.epoch(), (is_asked, &members.renewed), seconds())?;
            let people: BTreeSet<UserId> = recipients.keys().copied().collect();
            if lost > 0 {
                self.home.begin_replacing(place, session.id, &ring, people.clone(), seconds())?;
            }
            let title = metadata.clone().map(|metadata| (metadata, session.metadata_version));
            let mut given = 0;
            match self.give(&session, (&between, &ring), title, &mut given).await {
                // Another program of the owner was faster.
                Err(Error::Client(error)) if error.is(Code::VersionMismatch) => {
                    self.home.restore_rekey(place, session.id, before)?;
                    if lost > 0 && given == 0 {
                        self.home.end_replacing(place, session.id, known.tried)?;
                    }
                    least = if lost > 0 { ring.epoch() } else { least };
                    replaced = old.epoch();
                    session = self.session(session.id).await?;
                }
                ended => {
                    let is_hostless = ended?;
                    self.home.note_used(place, session.id, &ring, people)?;
                    if before.is_some() {
                        // The key that these waited for is not the newest one any more.
                        self.home.begin_rekey(place, session.id, &ring, &recipients, None)?;
                    }
                    if lost > 0 {
                        self.say(Notice::KeysLost { session: session.reference, lost, is_replaced: true });
                    }
                    if session.hosted {
                        self.home.note_host(place, session.id, ring.epoch(), is_hostless)?;
                    }
                    self.home.end_removal(place, session.id, &removed)?;
                    match self.pass_on(&session, &ring, &recipients).await {
                        Ok(()) => self.home.end_rekey(place, session.id)?,
                        Err(error) => self.say(Notice::KeyNotPassedOn(error)),
                    }
                    // As it is now, and not as the server may say.
                    let mut session = Session { key_epoch: i64::from(ring.epoch()), rekey_needed: false, ..session };
                    if let (Some(metadata), Some(seen)) = (metadata, seen) {
                        (session.metadata, session.metadata_version) = (metadata.into_string(), seen.version);
                        self.home.note_titles(place, BTreeMap::from([(session.id, seen)]))?;
                    }
                    return Ok((session, ring));
                }
            }
        }
        Err(Error::Overtaken("the key of this session"))
    }

    /// Gives the server each of these keys, the last one with the title, and counts them in `given`. Returns whether the machine that hosts the
    /// session gets none.
    async fn give(
        &self,
        session: &Session,
        (between, last): (&[KeyRing], &KeyRing),
        mut title: Option<(Metadata, i64)>,
        given: &mut usize,
    ) -> Result<bool> {
        let mut is_hostless = false;
        for ring in between.iter().chain([last]) {
            let title = if ring == last { title.take() } else { None };
            let host_key = self.host_key(session, ring)?;
            is_hostless = host_key.is_none();
            let update = UpdateSession {
                expected_metadata_version: title.as_ref().map(|(_, version)| *version),
                metadata: title.map(|(metadata, _)| metadata),
                encryption_key: Some(seal_ring(ring, &self.content_key()?, self.binding(session), &self.key)?),
                host_key,
                expected_key_epoch: Some(i64::from(ring.epoch()) - 1),
                content_epoch: self.content_epoch(),
                ..UpdateSession::default()
            };
            self.client.update_session(session.id, &update).await?;
            *given += 1;
        }
        Ok(is_hostless)
    }

    /// The ring for the machine that hosts the session, while the account's list has that machine.
    fn host_key(&self, session: &Session, ring: &KeyRing) -> Result<Option<Blob<1, 8_192>>> {
        let Some(machine) = host_of(session) else { return Ok(None) };
        let own = self.own();
        let entry = own.list.body().devices.iter().find(|device| device.machine_id.as_ref() == Some(machine));
        let Some(entry) = entry else { return Ok(None) };
        let to = BoxPublicKey::from_text(&entry.box_key)
            .map_err(|error| Error::Seal("The key of the machine".to_owned(), error))?;
        let binding = Binding::Host { session: session.id, machine, content_epoch: own.contents.epoch() };
        seal_ring(ring, &to, binding, &self.key).map(Some)
    }
}

/// The key after this ring's, and above this epoch. A server that was restored gets a key for each epoch that it has lost, and then the one
/// that is used. As with keys that a machine makes, grants count until a person's device passes one on.
pub(super) fn next_above(ring: &KeyRing, epoch: u32) -> seal::Result<(Vec<KeyRing>, KeyRing)> {
    let (mut between, mut newest) = (Vec::new(), ring.clone());
    // The last key of all is the one that is used.
    while newest.epoch() < epoch.min(KeyRing::LAST_EPOCH - 1) {
        newest = newest.next_by_machine()?;
        between.push(newest.clone());
    }
    Ok((between, newest.next()?))
}
