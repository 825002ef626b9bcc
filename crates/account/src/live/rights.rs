//! The rights that a removed device has given people in live sessions. They are taken back, or given again by this device.

use std::collections::BTreeSet;

use ensemble_client::idempotency_key;
use ensemble_protocol::transcript::body::{AccessGrant, Content, Control};
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::Session;
use serde::Serialize;

use super::versions::Versions;
use crate::account::Account;
use crate::error::Result;
use crate::known_sessions::Revocation;
use crate::notice::Notice;

/// How many live sessions are searched for rights that a removed device has given.
const MOST: usize = 100;

/// A right of a person that a removed device has given.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    session: Ref,
    user_id: UserId,
    may: May,
    kept: bool,
}

/// Takes back the rights that removed devices have given in the first [`MOST`] of these sessions, or gives them again if the device is in
/// `kept`. Does not wait for machines: the next command repeats a revocation that has not arrived.
pub(crate) async fn settle_rights(me: &Account, sessions: &[&Session], kept: &BTreeSet<String>) -> Vec<Given> {
    let mut all = Vec::new();
    for session in sessions.iter().take(MOST) {
        me.client.leave_room().await;
        if let Err(why) = settle_in(me, session.id, kept, &mut all).await {
            me.say(Notice::RightsUnknown { session: session.reference, why });
        }
    }
    if sessions.len() > MOST {
        me.say(Notice::RightsNotSearched(sessions.len() - MOST));
    }
    all
}

async fn settle_in(me: &Account, id: SessionId, kept: &BTreeSet<String>, all: &mut Vec<Given>) -> Result<()> {
    let mut live = me.live(id).await?;
    live.load_state().await?;
    let own = me.own();
    let is_gone = |key: &String| own.list.device(key).is_none_or(|device| !device.role.shares_sessions());
    let by_removed = |grant: &&AccessGrant| grant.may != May::Nothing && grant.key.as_ref().is_some_and(is_gone);
    let given: Vec<AccessGrant> =
        live.view.state().map(|state| state.access.iter().filter(by_removed).cloned().collect()).unwrap_or_default();
    let session = live.session.reference;
    for known in given {
        let (local_id, versions) = (idempotency_key(), Versions::of(me, id));
        let is_kept = known.key.as_ref().is_some_and(|key| kept.contains(key));
        let version =
            if is_kept { versions.to_give(Some(&known), None) } else { versions.to_take(Some(&known), None) }?;
        let may = if is_kept { known.may.clone() } else { May::Nothing };
        let noted = me.home.settings()?.revocations.remove(me.place()).unwrap_or_default();
        let noted = noted.get(&id).and_then(|users| users.get(&known.user)).map(|noted| noted.share);
        let share = noted.filter(|_| !is_kept).unwrap_or_default();
        if !is_kept {
            let revocation = Revocation { local_id: local_id.clone(), version, share };
            me.home.begin_revocation(me.place(), id, known.user, revocation)?;
        }
        let (user_id, given) = (known.user, known.may.clone());
        let order =
            AccessGrant { may, version, removed: share.removed, key_epoch: share.key_epoch, key: None, ..known };
        let sent = live.sender().send_as(local_id, Content::Control(Control::Access(order))).await;
        // A revocation is repeated until it arrives.
        if is_kept {
            sent?;
        } else if let Err(why) = sent {
            me.say(Notice::RightsUnknown { session, why });
        }
        let person = me.described(user_id).await;
        me.say(Notice::RightSettled { person, may: given.clone(), session, is_kept });
        all.push(Given { session, user_id, may: given, kept: is_kept });
    }
    Ok(())
}
