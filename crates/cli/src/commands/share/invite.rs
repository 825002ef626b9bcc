//! Invitations: one link that brings one person into a session. Every device of the owner answers it.

use std::process::ExitCode;
use std::time::Duration;

use ensemble_account::Account;
use ensemble_account::invites::{Guest, Inviting, Listed, Turn};
use ensemble_account::live::access::GrantOutcome;
use ensemble_client::idempotency_key;
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::SessionId;
use ensemble_types::invites::InviteState;
use ensemble_types::sessions::Session;
use ensemble_types::shares::{Share, ShareLevel};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Level;
use super::users::{ended, grant, level, may};
use crate::commands::DONE;
use crate::commands::link::picture;
use crate::confirm;
use crate::context::{Context, interrupted, once};
use crate::failure::{Failure, Result, is_loopback};
use crate::print;
use crate::when;

/// Another device that has begun to answer is done by then, or gone.
const TURN: Duration = Duration::from_secs(90);
/// A server answers at another address within this time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What the link lets a person do.
pub(super) struct Invitation {
    pub(super) level: Level,
    pub(super) approve: bool,
    pub(super) hours: u16,
}

/// Someone who has just joined.
pub(crate) struct Joined {
    session: Session,
    share: Share,
    outcome: GrantOutcome,
}

impl Invitation {
    pub(super) async fn run(self, context: &Context, me: &Account, id: SessionId) -> Result {
        if matches!(self.level, Level::Admin) {
            return Err(Failure::message(
                "An invitation lets a person view or edit. `ensemble share change` makes someone who has joined an admin.",
            ));
        }
        let (session, origin) = (me.session(id).await?, origin_for_others(me).await?);
        let lifetime = Duration::from_secs(u64::from(self.hours) * 3_600);
        let given = ShareLevel::from(self.level);
        let may = Some(may(given, self.approve)).filter(|may| *may != May::Nothing);
        let inviting = me.invite(&session, &origin, lifetime, (given, may)).await?;
        // Ctrl-C counts from the moment at which the address is shown.
        let left = interrupted()?;
        self.show(&origin, &inviting.code().address())?;
        let claimed = tokio::select! {
            claimed = inviting.claimed() => claimed?,
            () = left => {
                let reference = session.reference;
                print::note(format!(
                    "The invitation stays open for {} hours. It is answered when one of your devices is open: the page, or `ensemble attach`. \
                     `ensemble share remove {reference} --invite` ends it.",
                    self.hours
                ));
                return Ok(DONE);
            }
        };
        match claimed {
            Some(guest) => answer(context, me, &inviting, &guest).await,
            None => answered_elsewhere(context),
        }
    }

    fn show(&self, origin: &str, address: &str) -> Result<()> {
        if is_loopback(origin) {
            print::note(format!(
                "{origin} leads to this computer only. `ensemble up --tunnel` gives it an address for others.\n"
            ));
        }
        print::note(format!(
            "Send this address to one person, who opens it or types it into `ensemble join`:\n\n{address}\n\nIt is a secret, works once, and \
             for {} hours. Waiting; Ctrl-C leaves it open.",
            self.hours
        ));
        print::note(picture(address)?);
        Ok(())
    }
}

/// The address at which others reach the server. Without one it is the address that this program uses.
async fn origin_for_others(me: &Account) -> Result<String> {
    let here = me.client.origin();
    if !is_loopback(here) {
        return Ok(here.to_owned());
    }
    let all = me.client.public_origins().await?.into_iter();
    let mut others: Vec<String> = all.filter_map(|origin| Some(once(origin).ok()?.origin().to_owned())).collect();
    others.retain(|origin| !is_loopback(origin));
    others.sort_by_key(|origin| !origin.starts_with("https://"));
    Ok(others.into_iter().next().unwrap_or_else(|| here.to_owned()))
}

/// Answers those who wait to join a session: what lets them do more than read asks first.
pub(super) async fn answer_all(context: &Context, me: &Account, id: SessionId) -> Result {
    let (mut forged, mut last, mut waiting) = (None, None, Vec::new());
    for (inviting, guest) in me.claims().await?.into_iter().filter(|(inviting, _)| inviting.session == id) {
        match guest {
            Ok(guest) => waiting.push((inviting, guest)),
            Err(error) => {
                print::note(Failure::from(error).to_string());
                forged = Some(ExitCode::FAILURE);
            }
        }
    }
    for (inviting, guest) in &waiting {
        last = Some(answer(context, me, inviting, guest).await?);
    }
    match forged.or(last) {
        Some(code) => Ok(code),
        None if context.json => print::json(&Value::Null, false).map(|()| DONE),
        None => print::line("No one waits for an answer.").map(|()| DONE),
    }
}

async fn answer(context: &Context, me: &Account, inviting: &Inviting<'_>, guest: &Guest) -> Result {
    let wish = wish(me, inviting, guest).await?;
    if asks(inviting) {
        if !confirm::can_ask() {
            let Wish { text, answer } = wish;
            return Err(Failure::NotAgreed(format!("{text}. There is no terminal to ask you at. {answer}")));
        }
        let question = format!("{}. Allow it", wish.text);
        let agreed = tokio::task::spawn_blocking(move || {
            confirm::forget_typed();
            confirm::change(&question)
        });
        let agreed =
            agreed.await.map_err(|error| Failure::message(format!("Standard input cannot be read: {error}.")))?;
        if !agreed? {
            let text = match inviting.end().await.map_err(Failure::from) {
                Ok(()) => "Nothing was shared, and the invitation was ended.".to_owned(),
                Err(failure) => {
                    format!("Nothing was shared, but the invitation could not be ended: {failure} {}", wish.answer)
                }
            };
            return Err(Failure::message(text));
        }
    }
    let Some(joined) = let_in(context, me, (inviting, guest), true).await? else {
        let state = me.client.invite(&inviting.code().id, Duration::ZERO).await?.state;
        return match state {
            InviteState::Answered => answered_elsewhere(context),
            _ => Err(Failure::message("The invitation has ended. Nothing was shared.")),
        };
    };
    if context.json {
        print::json(&joined.share, false)?;
    } else {
        print::line(joined_by(&joined, guest))?;
    }
    ended(joined.outcome)
}

fn answered_elsewhere(context: &Context) -> Result {
    if context.json {
        print::json(&Value::Null, false)?;
    } else {
        print::line("Another of your devices has answered.")?;
    }
    Ok(DONE)
}

/// Whether the owner is asked: a link that was passed on must not command a machine.
pub(crate) fn asks(inviting: &Inviting<'_>) -> bool {
    inviting.level != ShareLevel::View || inviting.may.is_some()
}

/// What a guest wants, and how the owner answers.
pub(crate) struct Wish {
    pub(crate) text: String,
    pub(crate) answer: String,
}

pub(crate) async fn wish(me: &Account, inviting: &Inviting<'_>, guest: &Guest) -> Result<Wish> {
    let session = of_invitation(me, inviting).await?;
    let what = if inviting.may == Some(May::Approve) { "answer the agent of" } else { "write to" };
    let reference = session.reference;
    Ok(Wish {
        text: format!("{} (joined by your link) wants to {what} session {reference}", guest.name),
        answer: format!("Answer in the page, or by `ensemble share answer {reference}`."),
    })
}

/// The sentence about someone who has joined.
pub(crate) fn joined_by(joined: &Joined, guest: &Guest) -> String {
    let (name, reference, user) = (&guest.name, &joined.session.reference, guest.user);
    format!("{name} has joined session {reference}. `ensemble share remove {reference} {user}` ends that.")
}

/// The session of an invitation. With the session it ends.
async fn of_invitation(me: &Account, inviting: &Inviting<'_>) -> Result<Session> {
    match me.session(inviting.session).await {
        Err(ensemble_account::Error::Client(error)) if error.is_not_found() => {
            inviting.end().await?;
            Err(Failure::message("The session of the invitation was deleted, so the invitation was ended."))
        }
        session => Ok(session?),
    }
}

/// Shares the session with the guest, and answers. `None`: another device has, or without `is_asked` has begun to.
pub(crate) async fn let_in(
    context: &Context,
    me: &Account,
    (inviting, guest): (&Inviting<'_>, &Guest),
    is_asked: bool,
) -> Result<Option<Joined>> {
    let (by, deadline) = (idempotency_key(), Instant::now() + TURN);
    loop {
        match inviting.take(guest, &by).await? {
            Turn::Mine => break,
            Turn::Other if is_asked && Instant::now() < deadline => sleep(Duration::from_secs(1)).await,
            Turn::Other if is_asked => {
                return Err(Failure::message("Another of your devices has begun to answer, and does not end."));
            }
            Turn::Over | Turn::Other => return Ok(None),
        }
    }
    let session = of_invitation(me, inviting).await?;
    // From here on the guest has the session, and must not wait for an answer in vain.
    share(context, me, session.id, inviting, guest).await.map(Some).map_err(|failure| {
        let (reference, user) = (&session.reference, guest.user);
        Failure::message(format!(
            "{failure} {} may have the session all the same: `ensemble share remove {reference} {user}` ends that.",
            guest.name
        ))
    })
}

async fn share(
    context: &Context,
    me: &Account,
    id: SessionId,
    inviting: &Inviting<'_>,
    guest: &Guest,
) -> Result<Joined> {
    let (session, share) = me.share_session(id, (guest.user, inviting.level)).await?;
    let may = inviting.may.clone().unwrap_or(May::Nothing);
    let outcome = grant(context, me, &session, guest.user, may, true).await?;
    let name = me.client.account().await?.display_name.unwrap_or_default();
    inviting.answer(&session, guest, &name).await?;
    Ok(Joined { session, share, outcome })
}

/// Ends the invitations into a session.
pub(super) async fn end_all(context: &Context, me: &Account, id: SessionId) -> Result {
    let ended = me.end_invites(id).await?;
    if context.json {
        print::json(&json!({ "ended": ended }), false)?;
    } else {
        print::line(match ended {
            0 => "No invitation into this session was open.",
            1 => "The invitation was ended.",
            _ => "The invitations were ended.",
        })?;
    }
    Ok(DONE)
}

/// The invitations into a session, for a list.
pub(super) async fn listed(me: &Account, id: SessionId) -> Result<Vec<(Listed, bool)>> {
    let mut found = Vec::new();
    for invite in me.invites_into(id).await? {
        let is_dead = matches!(invite.state, InviteState::Open) && !leads_here(me, &invite).await;
        found.push((invite, is_dead));
    }
    Ok(found)
}

/// Whether the address of an invitation leads to this server still.
async fn leads_here(me: &Account, invite: &Listed) -> bool {
    if invite.base == me.client.origin()
        || me.client.public_origins().await.is_ok_and(|origins| origins.contains(&invite.base))
    {
        return true;
    }
    let Ok(client) = once(invite.base.clone()) else { return false };
    timeout(ANSWERS_WITHIN, client.invite(&invite.id, Duration::ZERO)).await.is_ok_and(|found| found.is_ok())
}

pub(super) fn as_json((invite, is_dead): &(Listed, bool)) -> Value {
    let Listed { id, state, expires_at, level, may, user, name, .. } = invite;
    json!({
        "id": id, "state": state, "expiresAt": expires_at, "level": level, "may": may, "user": user, "name": name, "isDead": is_dead,
    })
}

/// How an invitation stands, in a sentence.
pub(super) fn stands((invite, is_dead): &(Listed, bool), reference: &str) -> String {
    let (given, until) = (level(invite.level), when::local(invite.expires_at));
    let name = invite.name.as_deref().unwrap_or("someone");
    match invite.state {
        InviteState::Open if *is_dead => format!(
            "Invitation ({given}): dead, because {} leads here no more. `ensemble share remove {reference} --invite` ends it.",
            invite.base
        ),
        InviteState::Open => format!("Invitation ({given}): open until {until}."),
        InviteState::Claimed => {
            format!("Invitation ({given}): “{name}” waits. `ensemble share answer {reference}` lets them in, or not.")
        }
        InviteState::Answered => format!("Invitation ({given}): {name} has joined by it."),
        InviteState::Ended | InviteState::Expired => format!("Invitation ({given}): over."),
    }
}
