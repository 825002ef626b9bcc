//! Signs metadata: a title that a person gives, and the one of a session that gets a new key.

use std::collections::BTreeMap;

use ensemble_protocol::seal::{self, Admin, KeyRing, OfMachine, SealError, SharedRing};
use ensemble_types::ids::SessionId;
use ensemble_types::line::short;
use ensemble_types::sessions::{AccessLevel, Metadata, Session, UpdateSession};
use ensemble_types::text::Blob;
use futures_util::future::join_all;

use super::Card;
use super::titles::{Titled, Titles};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::seen_titles::{MOST_AHEAD, SHORT_TITLE, SeenTitle};

impl Account {
    /// What counts of the metadata of one session.
    pub(crate) async fn titled(&self, session: &Session, ring: &KeyRing) -> Result<Titled> {
        let titles = Titles::of(self)?;
        let titled = titles.titled(session, ring).await;
        titles.keep()?;
        Ok(titled)
    }

    /// The same for who signs it again.
    ///
    /// # Errors
    /// It cannot be found out now whether its title counts. It must not be lost because of that.
    pub(crate) async fn titled_for_writing(&self, session: &Session, ring: &KeyRing) -> Result<Titled> {
        let titles = Titles::of(self)?;
        let (titled, failed) = titles.judged(session, ring).await;
        titles.keep()?;
        failed.map_or(Ok(titled), Err)
    }

    /// Judges these sessions while a device is still listed that is to be removed: afterwards its signature counts only where it was
    /// seen before.
    pub(crate) async fn see_titles(&self, sessions: &[Session]) -> Result<()> {
        let titles = Titles::of(self)?;
        join_all(sessions.iter().map(|session| titles.title(session))).await;
        titles.keep()
    }

    /// Signs metadata for the version that it gets. What the machine has signed stays in it.
    fn seal_card(
        &self,
        session: &Session,
        ring: &KeyRing,
        (version, card): (i64, &Card),
        of_machine: Option<OfMachine>,
    ) -> Result<(Metadata, SeenTitle)> {
        let admin = match (session.access_level, session.encrypted_key.as_deref()) {
            (AccessLevel::Owner, _) => None,
            (_, sealed) => {
                let own = sealed.ok_or(SealError::Format).and_then(SharedRing::from_text).map_err(closed)?;
                Some(own.as_admin(self.id, self.owner().account).map_err(closed)?)
            }
        };
        self.seal_metadata(ring, (session.id, version), card, (admin.as_ref(), of_machine))
    }

    /// The same with the grant of an admin, if this user is one.
    pub(super) fn seal_metadata(
        &self,
        ring: &KeyRing,
        (session, version): (SessionId, i64),
        card: &Card,
        (admin, of_machine): (Option<&Admin>, Option<OfMachine>),
    ) -> Result<(Metadata, SeenTitle)> {
        let body = serde_json::to_string(card).map_err(|error| Error::Form(format!("The title {error}.")))?;
        let seen = SeenTitle::new((ring.epoch(), version), &body);
        let metadata = seal::Metadata { body, user: self.id, admin, of_machine };
        let sealed = seal::seal_metadata(ring, (session, version), metadata, &self.key).map_err(closed)?;
        Ok((Blob::new(sealed).map_err(|_| Error::TitleTooLong)?, seen))
    }

    /// The metadata for a new key, under which what was signed for the one before counts no more. `None`: none counted, or it cannot be
    /// signed again. A title prevents no new key: one that does not fit is shortened or left out.
    pub(super) async fn title_for_new_key(
        &self,
        session: &Session,
        (old, new): (&KeyRing, &KeyRing),
    ) -> Result<Option<(Metadata, SeenTitle)>> {
        let before = self.titled_for_writing(session, old).await?;
        let part = before.signed.clone();
        if before.lasting().is_none() && part.is_none() {
            return Ok(None);
        }
        let Some(version) = session.metadata_version.checked_add(1) else { return Ok(None) };
        let whole = before.lasting().cloned().unwrap_or_default();
        let title = whole.title.as_deref().map(|title| short(title, SHORT_TITLE));
        let (short, none) = (Card { title, ..Card::default() }, Card::default());
        let tries = [(&whole, part.clone()), (&short, part.clone()), (&none, part), (&short, None)];
        Ok(tries.into_iter().find_map(|(card, part)| self.seal_card(session, new, (version, card), part).ok()))
    }

    /// Gives a session another title.
    pub async fn rename_session(&self, id: SessionId, title: String) -> Result<Session> {
        let (session, ring) = self.writable(id).await?;
        let before = self.titled_for_writing(&session, &ring).await?;
        // What does not count does not come to count by a new title.
        let card = Card { title: Some(title), ..before.lasting().cloned().unwrap_or_default() };
        self.describe(&session, &ring, (&card, &before)).await
    }

    /// Replaces the metadata. A server that was restored gets it once for each version that it lacks, so that no device takes it for an old
    /// one.
    pub(crate) async fn describe(
        &self,
        session: &Session,
        ring: &KeyRing,
        (card, before): (&Card, &Titled),
    ) -> Result<Session> {
        let place = self.place();
        let known = self.home.seen_titles(place)?.remove(&session.id);
        let shown = session.metadata_version;
        // Versions of an earlier key are below every one of this key.
        let known = known.map(|known| known.at()).filter(|(epoch, _)| *epoch >= ring.epoch());
        let newest = known.map_or(shown, |(_, version)| version.max(shown));
        if newest.saturating_sub(shown) > MOST_AHEAD {
            return Err(Error::TitleBehind(session.reference));
        }
        let mut replaced = shown;
        loop {
            let version = replaced.checked_add(1);
            let version = version.ok_or_else(|| Error::ImpossibleVersion)?;
            let (metadata, seen) = self.seal_card(session, ring, (version, card), before.signed.clone())?;
            let update = UpdateSession {
                metadata: Some(metadata),
                expected_metadata_version: Some(replaced),
                ..UpdateSession::default()
            };
            let changed = self.client.update_session(session.id, &update).await?;
            replaced = version;
            if replaced > newest {
                self.home.note_titles(place, BTreeMap::from([(session.id, seen)]))?;
                return Ok(changed);
            }
        }
    }
}

fn closed(error: SealError) -> Error {
    match error {
        SealError::TooLong => Error::TitleTooLong,
        error => Error::Seal("The title".to_owned(), error),
    }
}
