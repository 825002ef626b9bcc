//! The shares of a removed device that its owner keeps, in sessions that get no new key yet. A remaining device signs them again, because
//! what the removed one has signed no longer counts once its removal is finished.

use std::collections::BTreeSet;

use ensemble_protocol::seal::SharedRing;
use ensemble_types::sessions::Session;
use ensemble_types::shares::{Share, UpdateShare};
use futures_util::TryStreamExt;

use super::Members;
use crate::account::Account;
use crate::error::Result;

impl Account {
    /// Gives the key of a session again to the people who got it from these removed devices. The removed devices have that key, so the
    /// new grant speaks of the same content epoch as the old one: its holder reads, and writes after the next key. A key that a removed
    /// device has made is given to no one.
    pub(crate) async fn share_again(&self, session: Session, removed: &BTreeSet<String>) -> Result<()> {
        if !self.is_maker_listed(&session) {
            return Ok(());
        }
        let (session, ring) = self.readable(session).await?;
        let origin = self.client.origin();
        let (known, gone) =
            (self.home.known_session(origin, session.id)?, self.home.removed_shares(origin, session.id)?);
        let (counts, members) = (ring.floor().max(known.floor)..=ring.epoch(), Members::given_by(removed));
        let shares: Vec<Share> = self.client.shares(session.id).try_collect().await?;
        for share in shares.iter().filter(|share| !gone.contains(&share.user_id)) {
            let counts_anyway = self.granted(share, &counts, &Members::default()).await.is_ok();
            let Ok((level, None)) = self.granted(share, &counts, &members).await else { continue };
            let Ok(old) = SharedRing::from_text(&share.encrypted_key) else { continue };
            if counts_anyway {
                continue;
            }
            let grant = (share.user_id, level);
            let (key, epoch) = self.sealed_at(&session, grant, (&ring, old.content_epoch())).await?;
            let update = UpdateShare { encrypted_key: Some(key), access_level: None, content_epoch: Some(epoch) };
            match self.client.update_share(session.id, share.user_id, &update).await {
                // The share was removed in the meantime.
                Err(error) if error.is_not_found() => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }
}
