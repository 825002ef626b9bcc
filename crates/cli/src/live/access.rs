//! What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

use ensemble_transcript::account_digest;
use ensemble_transcript::body::{AccessGrant, Content, Control};
use ensemble_transcript::view::Taken;
use ensemble_transcript::words::{May, Mode};
use ensemble_types::ids::UserId;
use ensemble_types::sessions::{AccessLevel, Session};

use super::Live;
use crate::context::{Context, Me, now};
use crate::failure::{Failure, Result};
use crate::print;

/// Tells the session's machine what this person may do. Sessions of people, and those of others, need nothing. `is_first`: they have
/// had no share of it.
pub(crate) async fn grant(
    context: &Context,
    me: &Me,
    session: &Session,
    user: UserId,
    may: May,
    is_first: bool,
) -> Result<()> {
    if !session.hosted || session.access_level != AccessLevel::Owner {
        return Ok(());
    }
    let mut live = Live::open(context, me, session.id).await?;
    live.load().await?;
    let state = live.view.state();
    let known = state.and_then(|state| state.access.iter().find(|grant| grant.user == user));
    // A right that was given may not be in the last state, so taking one away is always said.
    let is_new = state.is_some() && known.is_none() && is_first;
    if known.is_some_and(|known| known.may == may && may != May::Nothing) || (is_new && may == May::Nothing) {
        return Ok(());
    }
    // The clock, so that a computer that has not read the last state does not go back.
    let clock = u64::try_from(now().micros() / 1_000).unwrap_or_default();
    let version = known.map_or(0, |known| known.version.saturating_add(1)).max(clock);
    let is_careless = state.is_some_and(|state| matches!(state.mode, Mode::Edit | Mode::Bypass));
    let list = me.list_of(context, user).await?;
    let account = account_digest(&list.body().account).ok_or_else(|| {
        Failure::message(format!("The account key of {user} cannot be read. The machine was not told."))
    })?;
    let grant = AccessGrant { user, account, may: may.clone(), version };
    match live.command(Content::Control(Control::Access(grant))).await? {
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
            print::note(format!("The machine did not take it: {why}"));
        }
        Taken::NotYet | Taken::Queued => print::note(
            "The machine has not confirmed yet what they may do: it is away. It does what it last knew until it is back.",
        ),
    }
    if is_careless && may == May::Prompt {
        print::note("The agent asks little in its mode, so you are asked before it does what they prompt.");
    }
    Ok(())
}
