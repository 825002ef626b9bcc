//! `ensemble share add`, `list`, `change` and `remove`: sharing with users.

use std::convert::Infallible;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use ensemble_account::Account;
use ensemble_account::live::access::{self, GrantOutcome};
use ensemble_account::sessions::{Named, host_of};
use ensemble_account::sharing::Members;
use ensemble_protocol::transcript::plain::rejection;
use ensemble_protocol::transcript::words::May;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::links::LinkState;
use ensemble_types::problem::Code;
use ensemble_types::refs::Ref;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::{Share, ShareLevel};
use futures_util::TryStreamExt;
use serde_json::json;

use super::Level;
use super::invite::{Invitation, as_json, end_all, listed, stands as invite_stands};
use super::people::{Who, remember};
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::live;
use crate::machines::Machines;
use crate::print;
use crate::when;

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The user's id, which `ensemble whoami` shows to the user; later also the user's name or fingerprint
    #[arg(required_unless_present = "invite", conflicts_with = "invite")]
    user: Option<Who>,
    /// What the user may do
    #[arg(long, short, value_enum, default_value = "view")]
    level: Level,
    /// In a live session: the user may also answer what the agent asks
    #[arg(long)]
    approve: bool,
    /// Show a link that brings one person into the session, and wait until that person has joined
    #[arg(long)]
    invite: bool,
    /// How long the link of --invite works
    #[arg(long, default_value_t = 24, requires = "invite", value_parser = clap::value_parser!(u16).range(1..=168))]
    hours: u16,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The user's id, name or fingerprint
    user: Who,
    /// What the user may do from now on
    #[arg(long, short, value_enum)]
    level: Level,
    /// In a live session: the user may also answer what the agent asks
    #[arg(long)]
    approve: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// The user's id, name or fingerprint (with your own id you leave the session)
    #[arg(required_unless_present = "invite", conflicts_with = "invite")]
    user: Option<Who>,
    /// End the invitations into the session that no one has used
    #[arg(long)]
    invite: bool,
}

/// `USER:LEVEL`, as `ensemble claude --share` takes it.
#[derive(Clone, Debug)]
pub(crate) struct With {
    user: Who,
    level: Level,
}

impl FromStr for With {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (user, level) = text.rsplit_once(':').ok_or_else(|| "must be like USER:view".to_owned())?;
        let level = Level::from_str(level, false).map_err(|_| "the level is view, edit or admin".to_owned())?;
        let user = user.parse().unwrap_or_else(|never: Infallible| match never {});
        Ok(Self { user, level })
    }
}

impl With {
    /// Shares a session that has just begun.
    pub(crate) async fn share(&self, context: &Context, me: &Account, id: SessionId) -> Result<()> {
        let (session, share, fingerprint, outcome) =
            share_with(context, me, id, (&self.user, self.level, false)).await?;
        let called = me.described(share.user_id).await;
        print::note(format!("{called} may now {} session {}.", verb(share.access_level), session.reference));
        compare(&fingerprint);
        if let Err(failure) = ended(outcome) {
            print::note(failure.to_string());
        }
        Ok(())
    }
}

impl Add {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result {
        let id = self.session.find(me).await?;
        let Some(user) = &self.user else {
            let Self { level, approve, hours, .. } = self;
            return Invitation { level, approve, hours }.run(context, me, id).await;
        };
        let (session, share, fingerprint, outcome) =
            share_with(context, me, id, (user, self.level, self.approve)).await?;
        if context.json {
            print::json(&share, false)?;
        } else {
            let called = me.described(share.user_id).await;
            print::line(format!("{called} may now {} session {}.", verb(share.access_level), session.reference))?;
            compare(&fingerprint);
        }
        ended(outcome)
    }
}

fn compare(fingerprint: &str) {
    print::note(format!(
        "The fingerprint of the user's key is {fingerprint}. Compare it with what `ensemble whoami` shows the user."
    ));
}

/// Shares a session. The text is the fingerprint of the user's key.
async fn share_with(
    context: &Context,
    me: &Account,
    id: SessionId,
    (user, level, approve): (&Who, Level, bool),
) -> Result<(Session, Share, String, GrantOutcome)> {
    let (user_id, looked_at) = user.chosen(context, me).await?;
    let fingerprint = me.fingerprint_of(user_id).await?;
    if looked_at.is_some_and(|looked_at| looked_at != fingerprint) {
        return Err(Failure::message(format!(
            "The server shows two keys of {user_id}. Nothing was shared. Do not trust this server."
        )));
    }
    let level = level.into();
    let (session, share) = me.share_session(id, (user_id, level)).await?;
    let outcome = grant(context, me, &session, user_id, may(level, approve), true).await?;
    remember(context, me, user_id).await?;
    Ok((session, share, fingerprint, outcome))
}

impl Change {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result {
        let id = self.session.find(me).await?;
        let user = self.user.find(context, me, id).await?;
        let level = self.level.into();
        let session = me.session(id).await?;
        if may(level, self.approve) == May::Nothing {
            access::begin_taking(me, &session, user, false)?;
        }
        let (session, share) = me.change_share(session, (user, level)).await?;
        let outcome = grant(context, me, &session, user, may(level, self.approve), false).await?;
        if context.json {
            print::json(&share, false)?;
        } else {
            let called = me.described(user).await;
            print::line(format!("{called} may now {} session {}.", verb(share.access_level), session.reference))?;
        }
        ended(outcome)
    }
}

impl Remove {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result {
        let id = self.session.find(me).await?;
        let Some(user) = &self.user else { return end_all(context, me, id).await };
        let user = user.find(context, me, id).await?;
        let called = me.described(user).await;
        let session = me.session(id).await?;
        let mut outcome = GrantOutcome::Done;
        // A user who has left cannot read the session any more, and need not change its key.
        if user != me.id && session.access_level == AccessLevel::Owner {
            access::begin_taking(me, &session, user, true)?;
            context.home.begin_share_removal(me.place(), id, user)?;
            me.client.delete_share(id, user).await?;
            // The machine first: what they may do ends with its receipt.
            outcome = grant(context, me, &session, user, May::Nothing, false).await?;
            let session = me.session(id).await?;
            me.rekey(session, &Members::without(user)).await?;
        } else {
            me.client.delete_share(id, user).await?;
        }
        if context.json {
            print::json(&json!({ "success": true }), false)?;
        } else {
            print::line(format!("{called} no longer has access to the session."))?;
        }
        ended(outcome)
    }
}

/// The exit code of a command that has taken a right away which the machine may still grant.
const UNCONFIRMED: u8 = 5;

/// Sends the session's machine what this person may do, and says at once where it may still grant what is taken away.
pub(super) async fn grant(
    context: &Context,
    me: &Account,
    session: &Session,
    user: UserId,
    may: May,
    is_first: bool,
) -> Result<GrantOutcome> {
    if session.hosted && session.access_level == AccessLevel::Owner {
        live::wake(context, me, session).await;
    }
    let outcome = access::grant(me, session, user, may, is_first).await?;
    if matches!(outcome, GrantOutcome::Unconfirmed) {
        let machine = match host_of(session) {
            Some(id) => Machines::load(me).await.map_or_else(|_| id.to_string(), |machines| machines.called(id)),
            None => "The machine".to_owned(),
        };
        let name = me.described(user).await;
        print::note(format!(
            "{machine} has not confirmed that {name} may no longer prompt. The next command tries again."
        ));
    }
    Ok(outcome)
}

/// What a command ends with, by what the machine does with the new right.
pub(super) fn ended(outcome: GrantOutcome) -> Result {
    match outcome {
        GrantOutcome::Done => Ok(ExitCode::SUCCESS),
        GrantOutcome::Unconfirmed => Ok(UNCONFIRMED.into()),
        GrantOutcome::Rejected { code, text, again } => {
            let why = rejection(code.as_ref(), text.as_deref());
            let next = if again { " The next command tries again." } else { "" };
            Err(Failure::message(format!("The machine did not take it: {why}{next}")))
        }
    }
}

pub(super) async fn list(context: &Context, me: &Account, session: SessionId) -> Result<()> {
    let shares: Vec<Share> = me.client.shares(session).try_collect().await?;
    let link = match me.client.link_state(session).await {
        Ok(link) => Some(link),
        // A server of an older version does not have the call.
        Err(error) if error.is(Code::LinkNotFound) || error.is(Code::MethodNotAllowed) => None,
        Err(error) => return Err(error.into()),
    };
    let invites = listed(me, session).await?;
    if context.json {
        let invites: Vec<_> = invites.iter().map(as_json).collect();
        return print::json(&json!({ "shares": shares, "link": link, "invites": invites }), false);
    }
    let reference = Ref::of(&session).to_string();
    for invite in &invites {
        print::line(invite_stands(invite, &reference))?;
    }
    if let Some(link) = link {
        print::line(stands(&link))?;
    }
    if shares.is_empty() {
        return print::line("This session is not shared with other users.");
    }
    let mut table = Table::new([
        Column::id("USER", 0),
        Column::fixed("LEVEL", 0),
        Column::fixed("SINCE", 3),
        Column::text("NAME", 2, 8),
    ]);
    for share in shares {
        let name = me.name_of(share.user_id).await;
        let cells = [
            share.user_id.to_string(),
            level(share.access_level).to_owned(),
            when::ago(share.created_at),
            name.unwrap_or_default(),
        ];
        table.row(cells.map(|cell| (Tone::Plain, cell)));
    }
    print::table(&table)
}

/// How a public link stands, in a sentence.
fn stands(LinkState { expires_at, max_uses, uses, .. }: &LinkState) -> String {
    let opened =
        max_uses.map_or_else(|| format!("opened {uses} times"), |most| format!("opened {uses} of {most} times"));
    let end = expires_at.map_or_else(|| "never expires".to_owned(), |at| format!("expires {}", when::local(at)));
    format!("Public link: {opened}, {end}.")
}

/// What a share of a live session lets a person do with its agent.
pub(super) fn may(level: ShareLevel, approve: bool) -> May {
    match level {
        _ if approve => May::Approve,
        ShareLevel::Edit => May::Prompt,
        ShareLevel::View | ShareLevel::Admin => May::Nothing,
    }
}

pub(super) fn level(level: ShareLevel) -> &'static str {
    match level {
        ShareLevel::View => "view",
        ShareLevel::Edit => "edit",
        ShareLevel::Admin => "admin",
    }
}

fn verb(level: ShareLevel) -> &'static str {
    match level {
        ShareLevel::View => "read",
        ShareLevel::Edit => "read and write",
        ShareLevel::Admin => "read, write and manage",
    }
}
