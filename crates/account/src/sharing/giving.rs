//! Gives people a session, and changes what they may do there.

use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::{CreateShare, Share, ShareLevel, UpdateShare};
use futures_util::TryStreamExt;

use super::Members;
use crate::account::Account;
use crate::error::{Error, Result};
use crate::sessions::lacks_key;

impl Account {
    /// Shares the session with its newest key, also when another program gives it a new one at the same time.
    pub async fn share_session(
        &self,
        id: SessionId,
        (user_id, level): (UserId, ShareLevel),
    ) -> Result<(Session, Share)> {
        const TRIES: usize = 3;
        // An admin who is to be less than that: a new key ends what the level has granted.
        let is_admin = |share: &Share| share.user_id == user_id && share.access_level == ShareLevel::Admin;
        let session = self.session(id).await?;
        self.refuse_demo(&session).await?;
        if session.access_level == AccessLevel::Owner && level != ShareLevel::Admin {
            let shares: Vec<Share> = self.client.shares(id).try_collect().await?;
            if shares.iter().any(is_admin) {
                self.rekey(session, &Members::without(user_id)).await?;
            }
        }
        for _ in 0..TRIES {
            let (session, ring) = self.writable(id).await?;
            let (encrypted_key, epoch) = self.sealed_for(&session, user_id, level, &ring).await?;
            let request = CreateShare { user_id, access_level: level, encrypted_key, content_epoch: Some(epoch) };
            let (share, _) = self.client.create_share(id, &request).await?;
            let (now, newest) = self.readable(self.session(id).await?).await?;
            if newest.epoch() <= ring.epoch() && !lacks_key(&now, &newest) {
                self.home.note_person(self.place(), id, &ring, user_id)?;
                return Ok((session, share));
            }
        }
        Err(Error::Overtaken("the key of this session"))
    }

    /// Gives a person another level. It is signed together with the key, and a new key ends what an earlier level has granted.
    pub async fn change_share(
        &self,
        session: Session,
        (user, level): (UserId, ShareLevel),
    ) -> Result<(Session, Share)> {
        let (session, ring) = if session.access_level == AccessLevel::Owner {
            let lock = self.home.lock_keys().await?;
            self.rekey_locked(session, &Members::with_level(user, level), true, &lock).await?
        } else {
            self.writable(session.id).await?
        };
        let (key, epoch) = self.sealed_for(&session, user, level, &ring).await?;
        let update = UpdateShare { access_level: Some(level), encrypted_key: Some(key), content_epoch: Some(epoch) };
        let share = self.client.update_share(session.id, user, &update).await?;
        Ok((session, share))
    }
}
