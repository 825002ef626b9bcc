//! `ensemble session list` and `show`: sessions, decrypted as far as the keys allow.

use std::cmp::Reverse;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::Titles;
use ensemble_client::SessionFilter;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::{AccessLevel, Session, SessionStatus};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use crate::context::Context;
use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::says;
use crate::when;

const NO_TITLE: &str = "What the server shows as its title was not signed by you, its machine or an admin, or is older than what this computer has \
                        seen, so it is not shown.";

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Include ended sessions
    #[arg(long, short)]
    all: bool,
    /// Only your own sessions, without those that others share with you
    #[arg(long)]
    own: bool,
    /// Only sessions that others share with you
    #[arg(long, short, conflicts_with = "own")]
    shared: bool,
    /// The maximum number of sessions
    #[arg(long, short = 'n', default_value_t = 50)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let filter = SessionFilter { active_only: !self.all, shared: !self.own };
        let wanted = |session: &Session| !self.shared || session.access_level != AccessLevel::Owner;
        let titles = Titles::of(me)?;
        let sessions = me.client.sessions(filter).try_filter(|session| std::future::ready(wanted(session)));
        let mut sessions: Vec<Session> = sessions.take(self.limit).try_collect().await?;
        // A page begins within the minute in which the one before it ends.
        sessions.sort_by_key(|session| Reverse(session.updated_at));
        if context.json {
            let sessions = join_all(sessions.iter().map(|session| opened(&titles, session))).await;
            titles.keep()?;
            return print::json(&json!({ "sessions": sessions }), false);
        }
        if sessions.is_empty() {
            return print::line(if self.shared {
                "No sessions are shared with you."
            } else {
                "No sessions. Create one with `ensemble session create`."
            });
        }
        let mut table = Table::new([
            Column::fixed("SESSION", 0),
            Column::fixed("STATE", 0),
            Column::fixed("ACCESS", 4),
            Column::fixed("MESSAGES", 5),
            Column::fixed("CHANGED", 3),
            Column::text("TITLE", 2, 12),
        ]);
        for session in &sessions {
            table.row(row(&titles, session).await.map(|cell| (Tone::Plain, cell)));
        }
        titles.keep()?;
        print::table(&table)
    }
}

async fn row(titles: &Titles<'_>, session: &Session) -> [String; 6] {
    let title = match titles.opened(session).await.map(|titled| titled.shown()) {
        Ok(card) => card.title.or(card.path.as_deref().map(print::below_home)).unwrap_or_default(),
        Err(_) => "(cannot be decrypted)".to_owned(),
    };
    [
        session.reference.to_string(),
        state(session).to_owned(),
        session.access_level.as_str().to_owned(),
        session.last_seq.to_string(),
        when::ago(session.updated_at),
        print::short(&title, 60),
    ]
}

pub(super) async fn show(context: &Context, me: &Account, id: SessionId) -> Result<()> {
    let titles = Titles::of(me)?;
    let session = me.client.session(id).await?;
    if context.json {
        return print_opened(me, &session).await;
    }
    print::line(format!("session   {}", session.reference))?;
    match titles.opened(&session).await {
        Ok(titled) => {
            titles.keep()?;
            if titled.card.is_none() {
                print::note(NO_TITLE);
            }
            let card = titled.shown();
            let path = card.path.as_deref().map(print::below_home);
            for (name, value) in [("title", card.title), ("path", path), ("host", card.host)] {
                if let Some(value) = value {
                    print::line(format!("{name:8}  {}", print::inline(&value)))?;
                }
            }
        }
        Err(error) => print::note(says::error(&error)),
    }
    print::line(format!("state     {}", state(&session)))?;
    if let Some(machine) = &session.machine_id {
        print::line(format!("machine   {}", Machines::if_available(me).await.called(machine)))?;
    }
    print::line(format!("access    {}", session.access_level.as_str()))?;
    if session.access_level != AccessLevel::Owner {
        print::line(format!("owner     {}", me.described(session.owner_id).await))?;
    }
    print::line(format!("messages  {}", session.last_seq))?;
    print::line(format!("created   {}", when::both(session.created_at)))?;
    print::line(format!("changed   {}", when::both(session.updated_at)))?;
    if let Some(why) = says::cannot_write(&session) {
        print::note(why);
    }
    if session.rekey_needed && session.access_level == AccessLevel::Owner {
        print::note(format!(
            "A user lost access after the last change of the key. Change it with `ensemble session rekey {}`.",
            session.reference
        ));
    }
    Ok(())
}

pub(super) fn state(session: &Session) -> &'static str {
    match (session.archived, session.status, session.thinking, session.online) {
        (true, ..) => "archived",
        (_, SessionStatus::Ended, ..) => "ended",
        (.., true, true) => "working",
        (.., true) => "online",
        _ => "active",
    }
}

/// Prints a session for programs.
pub(super) async fn print_opened(me: &Account, session: &Session) -> Result<()> {
    let titles = Titles::of(me)?;
    let opened = opened(&titles, session).await;
    titles.keep()?;
    print::json(&opened, false)
}

/// The session as the server sent it, with its decrypted fields. A field that cannot be decrypted, or has no valid signature, is
/// `null`.
async fn opened(titles: &Titles<'_>, session: &Session) -> serde_json::Value {
    let titled = titles.opened(session).await.ok();
    let metadata = titled.filter(|titled| titled.card.is_some() || titled.of_machine.is_some());
    let metadata = metadata.map(|titled| titled.shown());
    let state = titles.opened_state(session).await;
    json!({ "session": session, "metadata": metadata, "agentState": state })
}
