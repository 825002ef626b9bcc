//! What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

use std::collections::BTreeMap;
use std::process::ExitCode;

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
use crate::commands::share::people::described;
use crate::context::{Context, Me, now};
use crate::failure::{Failure, Result};
use crate::known_sessions::Revocation;
use crate::machines::Machines;
use crate::print;
use crate::vault::host_of;

/// Whether the session's machine does what it was told of a person.
#[must_use]
#[derive(Debug)]
pub(crate) enum Told {
    /// It does, or there was nothing to say.
    Done,
    /// It is to take their right away, and has not confirmed that.
    Unconfirmed,
    /// It did not take it.
    Rejected(Failure),
}

impl Told {
    /// What the command ends with, when all else is done.
    pub(crate) fn code(self) -> Result {
        match self {
            Self::Done => Ok(ExitCode::SUCCESS),
            Self::Unconfirmed => Ok(UNCONFIRMED.into()),
            Self::Rejected(failure) => Err(failure),
        }
    }
}

/// The exit code of a command that has taken a right away which the machine may still grant.
const UNCONFIRMED: u8 = 5;

/// Tells the session's machine what this person may do. Sessions of people, and those of others, need nothing. `is_first`: they have
/// had no share of it.
pub(crate) async fn grant(
    context: &Context,
    me: &Me,
    session: &Session,
    user: UserId,
    may: May,
    is_first: bool,
) -> Result<Told> {
    if !session.hosted || session.access_level != AccessLevel::Owner {
        return Ok(Told::Done);
    }
    let mut live = Live::open(context, me, session.id).await?;
    live.load().await?;
    let state = live.view.state();
    let known = state.and_then(|state| state.access.iter().find(|grant| grant.user == user));
    // A right that was given may not be in the last state, so taking one away is always said.
    let is_new = state.is_some() && known.is_none() && is_first;
    let noted = context.home.settings()?.revocations.remove(me.client.origin()).unwrap_or_default();
    let taking = noted.get(&session.id).and_then(|users| users.get(&user));
    let (is_taking, removed) = (taking.is_some(), may == May::Nothing && taking.is_some_and(|taking| taking.removed));
    let has_it = known.is_some_and(|known| known.may == may && may != May::Nothing) && !is_taking;
    if has_it || (is_new && may == May::Nothing) {
        return Ok(Told::Done);
    }
    let (version, has_had_none) = (version_after(known), is_first && known.is_none());
    let is_careless = state.is_some_and(|state| matches!(state.mode, Mode::Edit | Mode::Bypass));
    let (origin, local_id) = (me.client.origin(), idempotency_key());
    if may == May::Nothing {
        let revocation = Revocation { local_id: local_id.clone(), version, removed };
        context.home.begin_revocation(origin, session.id, user, revocation)?;
    } else {
        // What was taken away before counts no more.
        context.home.end_revocation(origin, session.id, user)?;
    }
    let grant = named(context, me, user, may.clone(), (version, removed, known)).await?;
    let taken = live.command_as(local_id, grant).await?;
    if taken == Taken::Done {
        context.home.end_revocation(origin, session.id, user)?;
    }
    if is_careless && may == May::Prompt {
        print::note("The agent asks little in its mode, so you are asked before it does what they prompt.");
    }
    match taken {
        Taken::Done => print::note(match may {
            May::Approve => {
                "The machine takes prompts from them, and answers to what the agent asks: they can have it do anything."
            }
            May::Prompt => {
                "The machine takes prompts from them. What the agent asks is for you to answer, unless you share with --approve."
            }
            _ => "The machine takes no commands from them.",
        }),
        Taken::Rejected { code, text } => {
            let why = super::text::rejection(code.as_ref(), text.as_deref());
            let next = if may == May::Nothing { " The next command tells it again." } else { "" };
            return Ok(Told::Rejected(Failure::message(format!("The machine did not take it: {why}{next}"))));
        }
        // They have had no right that is known. The machine hears of it all the same.
        Taken::NotYet | Taken::Queued if may == May::Nothing && has_had_none => {}
        Taken::NotYet | Taken::Queued if may == May::Nothing => {
            let machine = called(context, me, session).await;
            let name = described(me, user).await;
            print::note(format!(
                "{machine} has not confirmed that {name} may no longer prompt. The next command tells it again."
            ));
            return Ok(Told::Unconfirmed);
        }
        Taken::NotYet | Taken::Queued => print::note(
            "The machine has not confirmed yet what they may do: it is away. It does what it last knew until it is back.",
        ),
    }
    Ok(Told::Done)
}

/// What people call the machine of a session.
async fn called(context: &Context, me: &Me, session: &Session) -> String {
    let Some(id) = host_of(session) else { return "The machine".to_owned() };
    Machines::load(context, me).await.map_or_else(|_| id.to_string(), |machines| machines.called(id))
}

/// Notes that a person's right is to be taken away, before anything else is done: whatever happens, the machine hears of it.
/// `removed`: their share goes too.
pub(crate) fn begin_taking(context: &Context, me: &Me, session: &Session, user: UserId, removed: bool) -> Result<()> {
    if !session.hosted || session.access_level != AccessLevel::Owner {
        return Ok(());
    }
    let revocation = Revocation { local_id: idempotency_key(), version: version_after(None), removed };
    context.home.begin_revocation(me.client.origin(), session.id, user, revocation)
}

/// `known` is what the machine has said of this person. To take a right away needs no list of theirs, which a server could spoil.
async fn named(
    context: &Context,
    me: &Me,
    user: UserId,
    may: May,
    (version, removed, known): (u64, bool, Option<&AccessGrant>),
) -> Result<Content> {
    if let (May::Nothing, Some(known)) = (&may, known) {
        let account = known.account.clone();
        return Ok(Content::Control(Control::Access(AccessGrant { user, account, may, version, removed, key: None })));
    }
    let list = me.list_of(context, user).await?;
    let account = account_digest(&list.body().account).ok_or_else(|| {
        Failure::message(format!("The account key of {user} cannot be read. The machine was not told."))
    })?;
    Ok(Content::Control(Control::Access(AccessGrant { user, account, may, version, removed, key: None })))
}

/// The version of the next grant. The clock, so that a computer that has not read the last state does not go back.
pub(super) fn version_after(known: Option<&AccessGrant>) -> u64 {
    let clock = u64::try_from(now().micros() / 1_000).unwrap_or_default();
    known.map_or(0, |known| known.version.saturating_add(1)).max(clock)
}

/// Tells machines again who may not command them any more, where that did not arrive or was refused. Waits for no receipt: the next
/// command looks.
pub(crate) async fn tell_again(context: &Context, me: &Me) -> Result<()> {
    let revocations = context.home.settings()?.revocations.remove(me.client.origin()).unwrap_or_default();
    let mut failed = None;
    for (session, users) in revocations {
        failed = failed.or(tell_one_again(context, me, session, users).await.err());
    }
    failed.map_or(Ok(()), Err)
}

async fn tell_one_again(context: &Context, me: &Me, id: SessionId, users: BTreeMap<UserId, Revocation>) -> Result<()> {
    let end = |user| context.home.end_revocation(me.client.origin(), id, user);
    let session = match me.session(context, id).await {
        Ok(session) => Some(session),
        Err(Failure::Client(error)) if error.is_not_found() => None,
        Err(failure) => return Err(failure),
    };
    // Without its machine nothing works for anybody there.
    if session.is_none_or(|session| !session.hosted || me.is_without_its_host(&session)) {
        return users.into_keys().try_for_each(end);
    }
    let mut live = Live::open_asleep(context, me, id).await?;
    live.load().await?;
    let mut failed = None;
    for (user, revocation) in users {
        failed = failed.or(tell_of_one_again(context, me, &live, user, revocation).await.err());
    }
    failed.map_or(Ok(()), Err)
}

async fn tell_of_one_again(
    context: &Context,
    me: &Me,
    live: &Live<'_>,
    user: UserId,
    Revocation { local_id, version, removed }: Revocation,
) -> Result<()> {
    let id = live.session.id;
    let end = || context.home.end_revocation(me.client.origin(), id, user);
    let taken = live.taken(&local_id);
    let known = live.view.state().and_then(|state| state.access.iter().find(|grant| grant.user == user));
    // There is no such person, and the machine knows none.
    if known.is_none() && me.client.user(user).await.is_err_and(|error| error.is_not_found()) {
        return end();
    }
    let is_newer = known.is_some_and(|known| known.version >= version);
    if taken == Some(Taken::Done) || (is_newer && known.is_some_and(|known| known.may == May::Nothing)) {
        return end();
    }
    let is_superseded =
        matches!(&taken, Some(Taken::Rejected { code: Some(code), .. }) if *code == ReceiptCode::Superseded);
    let is_outrun = is_newer || is_superseded;
    if is_outrun {
        let shares: Vec<Share> = me.client.shares(id).try_collect().await?;
        // Another device has given them something later. A share to read gives nothing here.
        if shares.iter().any(|share| share.user_id == user && share.access_level != ShareLevel::View) {
            return end();
        }
    }
    let (local_id, version) = match taken {
        // It has not arrived, or long ago. It is no second command.
        None if version <= version_after(None) && !is_outrun => (local_id, version),
        // This computer's clock was ahead when it was noted.
        None => (local_id, version_after(known)),
        // What was refused is refused for ever.
        Some(Taken::Rejected { .. }) => (idempotency_key(), version_after(known)),
        // The machine reads it when it is back.
        Some(_) => return Ok(()),
    };
    let revocation = Revocation { local_id: local_id.clone(), version, removed };
    context.home.begin_revocation(me.client.origin(), id, user, revocation)?;
    let grant = named(context, me, user, May::Nothing, (version, removed, known)).await?;
    live.sender().send_as(local_id, grant).await?;
    print::note(format!(
        "The machine of session {} is asked again to refuse commands of {user}.",
        live.session.reference
    ));
    Ok(())
}
