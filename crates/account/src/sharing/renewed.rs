//! What the grants of a session's guests say of its key: who has it, and who has removed a device that may have it.

use std::collections::BTreeSet;

use ensemble_protocol::seal::{KeyRing, SharedRing};
use ensemble_types::ids::UserId;
use ensemble_types::sessions::Session;
use ensemble_types::shares::Share;
use futures_util::TryStreamExt;

use super::shares;
use crate::account::Account;
use crate::devices::seconds;
use crate::error::Result;
use crate::notice::Notice;

/// Guests of a session.
pub(crate) struct Guests {
    /// Those who have its key by a grant of the owner, or are to get it from this device.
    pub(crate) people: BTreeSet<UserId>,
    /// Those who have removed a device since they got the key, and for whom the session may get the next one now.
    pub(crate) renewed: BTreeSet<UserId>,
}

impl Account {
    /// Who has the key of an own session, and who has removed a device since: that device may have the key. Only shares count that a device
    /// of the owner has granted, so no other user makes the session get new keys, and each makes one an hour.
    pub(crate) async fn guests(&self, session: &Session, ring: &KeyRing) -> Result<Guests> {
        let known = self.home.known_session(self.place(), session.id)?;
        let counts = ring.floor().max(known.floor)..=ring.epoch();
        let named: Vec<Share> = self.client.shares(session.id).try_collect().await?;
        let waiting = self.home.unfinished(self.place(), session.id)?.and_then(|unfinished| unfinished.of(ring));
        let mut people: BTreeSet<_> = waiting.into_iter().flat_map(|waiting| waiting.recipients.into_keys()).collect();
        let mut renewed = BTreeSet::new();
        for share in named {
            let user = share.user_id;
            // A user whose devices cannot be read now must not stop the owner.
            let Ok(list) = self.list_since(user, share.list_version).await else {
                people.extend(known.people_of(ring).filter(|people| people.contains(&user)).map(|_| user));
                continue;
            };
            let Ok(shared) = SharedRing::from_text(&share.encrypted_key) else { continue };
            // What was signed counts, and not what the server says of it.
            let signer = shared.signer(session.id, user, &list.body().account);
            if !signer.is_some_and(|signer| shares(&self.own().list, &signer)) {
                continue;
            }
            if shared.recipient_epoch() < list.body().content_epoch && shared.epoch() == ring.epoch() {
                renewed.insert(user);
            }
            if shared.admin().is_none() && counts.contains(&shared.epoch()) {
                people.insert(user);
            }
        }
        let (may, later): (BTreeSet<_>, BTreeSet<_>) =
            renewed.into_iter().partition(|user| known.may_renew(*user, ring.epoch(), seconds()));
        for user in later.iter().filter(|_| may.is_empty()) {
            let at = known.next_of(*user);
            self.say(Notice::NextKeyOfGuest { user: *user, session: session.reference, at });
        }
        Ok(Guests { people, renewed: may })
    }
}
