//! The shares of a removed device that its owner keeps, in sessions that get no new key yet. A remaining device signs them again, because
//! what the removed one has signed no longer counts once its removal is finished.

use std::collections::BTreeSet;

use ensemble_protocol::seal::{KeyRing, SharedRing};
use ensemble_types::sessions::Session;
use ensemble_types::shares::{Share, ShareLevel, UpdateShare};
use futures_util::TryStreamExt;

use super::{Members, Recipients};
use crate::account::Account;
use crate::error::Result;

impl Account {
    /// Gives the key of a session again to the people who got it from these removed devices. The removed devices have that key, so the
    /// new grant speaks of an earlier content epoch: its holder reads, and writes after the next key. A key that a removed device has made
    /// is given to no one. Returns the people.
    pub(crate) async fn share_again(&self, session: Session, removed: &BTreeSet<String>) -> Result<Recipients> {
        let mut again = Recipients::new();
        if !self.is_maker_listed(&session) {
            return Ok(again);
        }
        let (session, ring) = self.readable(session).await?;
        for (share, level) in self.given_by(&session, &ring, removed).await? {
            let Ok(old) = SharedRing::from_text(&share.encrypted_key) else { continue };
            let grant = (share.user_id, level);
            let of_owner = earlier(&old, self.own().list.body().content_epoch);
            let (key, epoch) = self.sealed_at(&session, grant, (&ring, of_owner)).await?;
            let update = UpdateShare { encrypted_key: Some(key), access_level: None, content_epoch: Some(epoch) };
            match self.client.update_share(session.id, share.user_id, &update).await {
                // The share was removed in the meantime.
                Err(error) if error.is_not_found() => {}
                answer => {
                    answer?;
                    again.insert(share.user_id, level);
                }
            }
        }
        Ok(again)
    }

    /// The people who have the present key of a session from these removed devices only. They get its next key.
    pub(crate) async fn kept_people(&self, session: &Session, removed: &BTreeSet<String>) -> Result<Recipients> {
        if removed.is_empty() {
            return Ok(Recipients::new());
        }
        let (session, ring, _) = self.newest(session.clone()).await?;
        let given = self.given_by(&session, &ring, removed).await?;
        Ok(given.into_iter().map(|(share, level)| (share.user_id, level)).collect())
    }

    /// The shares that count only because these removed devices have made them.
    async fn given_by(
        &self,
        session: &Session,
        ring: &KeyRing,
        removed: &BTreeSet<String>,
    ) -> Result<Vec<(Share, ShareLevel)>> {
        let place = self.place();
        let (known, gone) = (self.home.known_session(place, session.id)?, self.home.removed_shares(place, session.id)?);
        let (counts, members) = (ring.floor().max(known.floor)..=ring.epoch(), Members::given_by(removed));
        let shares: Vec<Share> = self.client.shares(session.id).try_collect().await?;
        let mut given = Vec::new();
        for share in shares.into_iter().filter(|share| !gone.contains(&share.user_id)) {
            let counts_anyway = self.granted(&share, &counts, &Members::default()).await.is_ok();
            if let (false, Ok((level, None))) = (counts_anyway, self.granted(&share, &counts, &members).await) {
                given.push((share, level));
            }
        }
        Ok(given)
    }
}

/// The content epoch of the owner that the grant of a removed device speaks of. The device has chosen it, so it is one before that of now in
/// any case.
fn earlier(old: &SharedRing, now: u32) -> u32 {
    old.content_epoch().min(now.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::AccountKey;
    use ensemble_protocol::seal::{BoxKeyPair, Grant};
    use ensemble_types::ids::{SessionId, UserId};

    use super::*;

    /// A guest writes only under a key that was granted in the content epoch of now.
    #[test]
    fn a_grant_of_a_removed_device_is_never_of_the_content_epoch_of_now() {
        let key = AccountKey::generate();
        let to = BoxKeyPair::of_device(&AccountKey::generate()).unwrap().public();
        let account = AccountKey::generate().public_key();
        let of = |content_epoch| {
            let (session, recipient) = (SessionId::generate(), UserId::generate());
            let level = ShareLevel::Edit;
            let grant = Grant { session, recipient, account: &account, level, content_epoch, recipient_epoch: 1 };
            SharedRing::seal(&KeyRing::generate(), &to, (grant, None), &key, None).unwrap()
        };
        let chosen = [1, 2, 3, 4, u32::MAX].map(|content_epoch| earlier(&of(content_epoch), 3));
        assert_eq!(chosen, [1, 2, 2, 2, 2]);
    }
}
