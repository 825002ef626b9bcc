//! What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

use std::collections::BTreeMap;

use ensemble_client::idempotency_key;
use ensemble_protocol::transcript::account_digest;
use ensemble_protocol::transcript::body::{AccessGrant, Content, Control};
use ensemble_protocol::transcript::view::Taken;
use ensemble_protocol::transcript::words::{May, Mode, ReceiptCode};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::{Share, ShareLevel};
use futures_util::TryStreamExt;

use super::Live;
use super::versions::{CLOCKS, Versions};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::known_sessions::{LostShare, Revocation};
use crate::notice::Notice;

/// Whether the session's machine has taken a change of a person's right.
#[must_use]
#[derive(Debug)]
pub enum GrantOutcome {
    /// It does, or there was nothing to say.
    Done,
    /// It has not confirmed that it takes their right away. The next command sends it again.
    Unconfirmed,
    /// It did not take it. `again`: the next command sends it again.
    Rejected { code: Option<ReceiptCode>, text: Option<String>, again: bool },
}

/// Sends the session's machine what this person may do. Sessions of people, and those of others, need nothing. `is_first`: they have
/// had no share of it, as the server says.
pub async fn grant(me: &Account, session: &Session, user: UserId, may: May, is_first: bool) -> Result<GrantOutcome> {
    if !session.hosted || session.access_level != AccessLevel::Owner {
        return Ok(GrantOutcome::Done);
    }
    let mut live = me.live(session.id).await?;
    live.load().await?;
    let state = live.view.state();
    let known = state.and_then(|state| state.access.iter().find(|grant| grant.user == user));
    // A right that was given may not be in the state that the server shows, so taking one away is always said, except where this device
    // has given none.
    let has_had_none = is_first && known.is_none() && me.home.known_session(me.place(), session.id)?.given == 0;
    let is_new = state.is_some() && has_had_none;
    let noted = me.home.settings()?.revocations.remove(me.place()).unwrap_or_default();
    let taking = noted.get(&session.id).and_then(|users| users.get(&user));
    let share = taking.filter(|_| may == May::Nothing).map(|taking| taking.share).unwrap_or_default();
    let has_it = known.is_some_and(|known| known.may == may && may != May::Nothing) && taking.is_none();
    if has_it || (is_new && may == May::Nothing) {
        return Ok(GrantOutcome::Done);
    }
    let versions = Versions::of(me, session.id);
    let version = match may {
        May::Nothing => versions.to_take(known, None)?,
        _ => versions.to_give(known, taking)?,
    };
    let is_careless = state.is_some_and(|state| matches!(state.mode, Mode::Edit | Mode::Bypass));
    let (place, local_id) = (me.place(), idempotency_key());
    if may == May::Nothing {
        let revocation = Revocation { local_id: local_id.clone(), version, share };
        me.home.begin_revocation(place, session.id, user, revocation)?;
    } else {
        // What was taken away before counts no more.
        me.home.end_revocation(place, session.id, user)?;
    }
    let by_earlier = match may {
        May::Nothing => Some(versions.to_take(known, Some(version))?).filter(|earlier| *earlier < version),
        _ => None,
    };
    let by_earlier = match by_earlier {
        Some(earlier) => Some((earlier, named(me, user, may.clone(), (earlier, share, known)).await?)),
        None => None,
    };
    let grant = named(me, user, may.clone(), (version, share, known)).await?;
    let mut taken = live.command_as(local_id, grant).await?;
    if let Some(by_earlier) = by_earlier {
        taken = take_by_earlier(&mut live, (user, share), by_earlier, (version, taken)).await?;
    }
    if taken == Taken::Done {
        me.home.end_revocation(place, session.id, user)?;
    }
    if is_careless && may == May::Prompt {
        me.say(Notice::AgentAsksLittle);
    }
    match taken {
        Taken::Done => me.say(Notice::MachineObeys(may)),
        Taken::Rejected { code, text } => return Ok(GrantOutcome::Rejected { code, text, again: may == May::Nothing }),
        // They have had no right that is known. The machine still gets it.
        Taken::NotYet | Taken::Queued if may == May::Nothing && has_had_none => {}
        Taken::NotYet | Taken::Queued if may == May::Nothing => return Ok(GrantOutcome::Unconfirmed),
        Taken::NotYet | Taken::Queued => me.say(Notice::MachineAway),
    }
    Ok(GrantOutcome::Done)
}

/// Notes that a person's right is to be taken away, before anything else is done: whatever happens, the machine gets it.
/// `removed`: their share goes too.
pub fn begin_taking(me: &Account, session: &Session, user: UserId, removed: bool) -> Result<()> {
    if !session.hosted || session.access_level != AccessLevel::Owner {
        return Ok(());
    }
    // Whose it is, and its machine, are known from now on, whatever the server says later.
    me.home.remember_session(me.place(), session, None)?;
    let version = Versions::of(me, session.id).to_take(None, None)?;
    // Another program may have made the newest key since this one has used one.
    let shown = me.fresh_ring(session).map_or(0, |signed| signed.ring.epoch());
    let newest = me.home.known_session(me.place(), session.id)?.epoch.max(shown);
    let share = LostShare { removed, key_epoch: removed.then_some(newest) };
    let revocation = Revocation { local_id: idempotency_key(), version, share };
    me.home.begin_revocation(me.place(), session.id, user, revocation)
}

/// A machine refuses a version that is ahead of its clock, and one of the two clocks here may be ahead. So it gets a version by the earlier
/// clock too, if it has refused the other one, or is away and may refuse it. `taken` is what it has said of the other one.
async fn take_by_earlier(
    live: &mut Live,
    (user, share): (UserId, LostShare),
    (earlier, grant): (u64, Content),
    (version, taken): (u64, Taken),
) -> Result<Taken> {
    let local_id = idempotency_key();
    match taken {
        Taken::Rejected { code: Some(ReceiptCode::Stale), .. } => {
            let revocation = Revocation { local_id: local_id.clone(), version: earlier, share };
            live.me.home.begin_revocation(live.me.place(), live.session.id, user, revocation)?;
            live.command_as(local_id, grant).await
        }
        Taken::NotYet | Taken::Queued if version - earlier > CLOCKS => {
            live.sender().send_as(local_id, grant).await?;
            Ok(taken)
        }
        taken => Ok(taken),
    }
}

/// `known` is what the machine has said of this person. To take a right away from a person who is known needs no list of theirs, which a
/// server could spoil.
async fn named(
    me: &Account,
    user: UserId,
    may: May,
    (version, LostShare { removed, key_epoch }, known): (u64, LostShare, Option<&AccessGrant>),
) -> Result<Content> {
    let account = match (&may, known, me.known_account(user)?) {
        (May::Nothing, Some(known), _) => Some(known.account.clone()),
        (May::Nothing, None, Some(account)) => account_digest(&account),
        _ => account_digest(&me.list_of(user).await?.body().account),
    };
    let account = account.ok_or(Error::KeyUnreadable(user))?;
    Ok(Content::Control(Control::Access(AccessGrant { user, account, may, version, removed, key_epoch, key: None })))
}

/// Tells machines again who may not command them any more, where that did not arrive or was refused. Waits for no receipt: the next
/// command looks.
pub(crate) async fn tell_again(me: &Account) -> Result<()> {
    let revocations = me.home.settings()?.revocations.remove(me.place()).unwrap_or_default();
    let mut failed = None;
    for (session, users) in revocations {
        failed = failed.or(tell_one_again(me, session, users).await.err());
    }
    failed.map_or(Ok(()), Err)
}

async fn tell_one_again(me: &Account, id: SessionId, users: BTreeMap<UserId, Revocation>) -> Result<()> {
    let end = |user| me.home.end_revocation(me.place(), id, user);
    let Some(session) = me.still_there(id).await? else { return Ok(()) };
    // Without its machine nothing works for anybody there.
    if me.is_without_its_host(&session) {
        return users.into_keys().try_for_each(end);
    }
    let mut live = me.live(id).await?;
    live.load().await?;
    if live.view.state().is_none() {
        live.load_state().await?;
    }
    let mut failed = None;
    for (user, revocation) in users {
        failed = failed.or(tell_of_one_again(me, &live, user, revocation).await.err());
    }
    failed.map_or(Ok(()), Err)
}

async fn tell_of_one_again(
    me: &Account,
    live: &Live,
    user: UserId,
    Revocation { local_id, version, share }: Revocation,
) -> Result<()> {
    let id = live.session.id;
    let end = || me.home.end_revocation(me.place(), id, user);
    let taken = live.taken(&local_id);
    let known = live.view.state().and_then(|state| state.access.iter().find(|grant| grant.user == user));
    // There is no such person: neither the machine nor this device knows one.
    let is_unknown = known.is_none() && me.known_account(user)?.is_none();
    if is_unknown && me.client.user(user).await.is_err_and(|error| error.is_not_found()) {
        return end();
    }
    let is_newer = known.is_some_and(|known| known.version >= version);
    // One that says nothing of the share does not say which keys are old.
    let is_whole = |known: &AccessGrant| known.removed && known.key_epoch >= share.key_epoch;
    let has_ended = |known: &AccessGrant| known.may == May::Nothing && (!share.removed || is_whole(known));
    if taken == Some(Taken::Done) || (is_newer && known.is_some_and(has_ended)) {
        return end();
    }
    let is_superseded =
        matches!(&taken, Some(Taken::Rejected { code: Some(code), .. }) if *code == ReceiptCode::Superseded);
    // What counts is not known, and another device may have given it.
    if is_superseded && live.view.state().is_none() {
        return Ok(());
    }
    let is_outrun = is_newer || is_superseded;
    if is_newer && known.is_some_and(|known| known.may != May::Nothing) {
        let shares: Vec<Share> = me.client.shares(id).try_collect().await?;
        // Another device has given them something later, as the machine has signed it. A share to read gives nothing here.
        if shares.iter().any(|share| share.user_id == user && share.access_level != ShareLevel::View) {
            return end();
        }
    }
    let versions = Versions::of(me, id);
    let next = versions.to_take(known, None)?;
    let (local_id, version) = match taken {
        // It has not arrived, or long ago. It is no second command.
        None if version <= next && !is_outrun => (local_id, version),
        // This computer's clock was ahead when it was noted.
        None => (local_id, next),
        // What was refused is refused for ever.
        Some(Taken::Rejected { code: Some(ReceiptCode::Stale), .. }) => {
            (idempotency_key(), versions.to_take(known, Some(version))?)
        }
        Some(Taken::Rejected { .. }) => (idempotency_key(), next),
        // The machine reads it when it is back.
        Some(_) => return Ok(()),
    };
    let revocation = Revocation { local_id: local_id.clone(), version, share };
    me.home.begin_revocation(me.place(), id, user, revocation)?;
    let grant = named(me, user, May::Nothing, (version, share, known)).await?;
    live.sender().send_as(local_id, grant).await?;
    me.say(Notice::RefusalRepeated { user, session: live.session.reference });
    Ok(())
}
