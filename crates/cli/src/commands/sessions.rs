//! `ensemble sessions`: what the live sessions of the account do, and which of them wait for a person.

use std::cmp::Reverse;
use std::pin::pin;

use clap::Args;
use ensemble_account::sessions::{AgentState, Card, Titles};
use ensemble_client::SessionFilter;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_types::attention::AttentionKind;
use ensemble_types::sessions::{AccessLevel, CannotWrite, Session, SessionStatus, StatedReason};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::{DONE, conversations};
use crate::context::Context;
use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::when;

/// Sessions that are read at most.
const MOST: usize = 200;

/// Shows live sessions: what their agents do, and what they wait for. `ensemble session list` shows those of people too.
#[derive(Debug, Default, Args)]
pub(crate) struct Sessions {
    /// Only those that wait for you
    #[arg(long)]
    needs_me: bool,
    /// Include ended sessions
    #[arg(long, short)]
    all: bool,
    /// The conversations that you began in this directory with the agents themselves
    #[arg(long, conflicts_with_all = ["needs_me", "all"])]
    local: bool,
}

impl Sessions {
    pub(crate) async fn run(self, context: &Context) -> Result {
        if self.local {
            return conversations::show(context).await;
        }
        let me = context.me().await?;
        let titles = Titles::of(&me)?;
        let filter = SessionFilter { active_only: !self.all, shared: true };
        let mut all = pin!(me.client.sessions(filter).take(MOST));
        let mut sessions = Vec::new();
        while let Some(session) = all.try_next().await? {
            if session.hosted && (!self.needs_me || needs_me(&titles, &session).await) {
                sessions.push(session);
            }
        }
        // A page begins within the minute in which the one before it ends.
        sessions.sort_by_key(|session| Reverse(session.updated_at));
        let cards = join_all(sessions.iter().map(|session| titles.title(session))).await;
        let cards: Vec<Card> = cards.iter().map(|titled| titled.shown()).collect();
        if context.json {
            titles.keep()?;
            let rows = sessions.iter().zip(&cards).map(|(session, card)| opened(session, card));
            print::json(&json!({ "sessions": rows.collect::<Vec<_>>() }), false)?;
            return Ok(DONE);
        }
        if sessions.is_empty() {
            print::line(if self.needs_me {
                "No session waits for you."
            } else {
                "No live sessions. `ensemble claude` starts one in this directory."
            })?;
            return Ok(DONE);
        }
        let machines = Machines::if_available(&me).await;
        let mut table = table();
        let states = join_all(sessions.iter().map(|session| titles.agent_state(session))).await;
        titles.keep()?;
        for ((session, card), agent_state) in sessions.iter().zip(&cards).zip(&states) {
            let of_machine = session.machine_id.as_ref().and_then(|id| machines.name(id).map(str::to_owned));
            let agent = card.more.get("agent").and_then(|agent| agent.as_str()).unwrap_or_default();
            let path = card.path.as_deref().map(print::below_home);
            let title = card.title.clone().or(path).unwrap_or_default();
            let tone = if session.attention.kind == AttentionKind::None { Tone::Plain } else { Tone::Strong };
            table.row(
                [
                    session.reference.to_string(),
                    state(session).to_owned(),
                    with_state(session, agent_state),
                    print::inline(agent),
                    of_machine.or_else(|| card.host.clone()).unwrap_or_default(),
                    when::ago(session.updated_at),
                    print::short(&title, 60),
                ]
                .map(|cell| (tone, cell)),
            );
        }
        print::table(&table)?;
        Ok(DONE)
    }
}

fn table() -> Table {
    Table::new([
        Column::fixed("SESSION", 0),
        Column::fixed("STATE", 0),
        // What a person is asked stays readable: the rest of it is in the session.
        Column::text("WAITS FOR", 0, 14),
        Column::fixed("AGENT", 2),
        Column::text("MACHINE", 4, 8),
        Column::fixed("CHANGED", 3),
        Column::text("TITLE", 1, 12),
    ])
}

fn with_state(session: &Session, state: &AgentState) -> String {
    let commands = match state.still_running.len() {
        0 => None,
        1 => Some("1 command still runs".to_owned()),
        more => Some(format!("{more} commands still run")),
    };
    // What stops the agent comes before what it wants.
    let said = [state.problem.as_deref().map(print::inline), lacks(session), Some(waits_for(session)), commands];
    said.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A session as JSON with its card, and without what is sealed: keys and ciphertext are of no use to its reader.
pub(super) fn opened(session: &Session, card: &Card) -> Value {
    const SEALED: [&str; 5] = ["metadata", "encryptionKey", "encryptedKey", "hostKey", "agentState"];
    let mut record = json!(session);
    if let Some(fields) = record.as_object_mut() {
        fields.retain(|name, _| !SEALED.contains(&name.as_str()));
    }
    json!({ "session": record, "metadata": card })
}

fn state(session: &Session) -> &'static str {
    match (session.status, session.online, session.thinking) {
        (SessionStatus::Ended, ..) => "ended",
        (_, false, _) => "away",
        (_, true, true) => "working",
        (_, true, false) => "idle",
    }
}

/// What waits for the owner does not wait for a guest who only reads.
async fn needs_me(titles: &Titles<'_>, session: &Session) -> bool {
    session.access_level != AccessLevel::View
        && (session.cannot_write.is_some()
            || session.attention.kind != AttentionKind::None
            || titles.agent_state(session).await.problem.is_some())
}

/// What its machine needs before it can write, by the server's word.
fn lacks(session: &Session) -> Option<String> {
    Some(match session.cannot_write.as_ref()? {
        StatedReason::Known(CannotWrite::ListUnread) => "a valid device list".to_owned(),
        StatedReason::Known(_) => "a new key".to_owned(),
        StatedReason::Other(why) => print::inline(why),
    })
}

fn waits_for(session: &Session) -> String {
    let open = session.attention.open;
    let several = |what: &str| if open > 1 { format!("{open} {what}s") } else { format!("a {what}") };
    let what = match session.attention.kind {
        AttentionKind::None => return String::new(),
        AttentionKind::Permission => several("permission"),
        AttentionKind::Question => several("question"),
        AttentionKind::Finished => "has finished".to_owned(),
        AttentionKind::Failed => "has failed".to_owned(),
    };
    if session.access_level == AccessLevel::View { format!("{what} (the owner's)") } else { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::says;

    fn session(more: &Value) -> Session {
        let id = ensemble_types::ids::SessionId::generate();
        let at = "2026-03-26T00:00:00Z";
        let mut all = json!({
            "id": id, "ref": ensemble_types::refs::Ref::of(&id), "ownerId": ensemble_types::ids::UserId::generate(),
            "hosted": true, "metadata": "m", "metadataVersion": 1, "agentState": null, "agentStateVersion": 0,
            "status": "active", "endedAt": null, "archived": false, "online": true, "thinking": false,
            "lastActiveAt": null, "lastSeq": 1, "accessLevel": "owner", "keyEpoch": 1, "rekeyNeeded": false,
            "createdAt": at, "updatedAt": at,
        });
        let (all_fields, more) = (all.as_object_mut().unwrap(), more.as_object().unwrap());
        all_fields.extend(more.clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_session_whose_machine_cannot_write_says_what_to_do() {
        let well = session(&json!({}));
        assert_eq!((with_state(&well, &AgentState::default()), says::cannot_write(&well)), (String::new(), None));
        for (why, level, lacks, todo) in [
            ("key_refused", "owner", "a new key", "`ensemble session rekey "),
            ("key_not_given", "owner", "a new key", "`ensemble session rekey "),
            ("key_of_stranger", "view", "a new key", "Its owner has to "),
            ("list_unread", "owner", "a valid device list", "Run `ensemble devices` on a primary device"),
            ("disk_full", "owner", "disk_full", "cannot send it: disk_full. "),
        ] {
            let asks = json!({ "kind": "question", "open": 1, "since": null, "id": "AAAAAAAAAAA" });
            let stuck = session(&json!({ "cannotWrite": why, "accessLevel": level, "attention": asks }));
            let shown = with_state(&stuck, &AgentState::default());
            assert!(shown.starts_with(&format!("{lacks}, a question")), "{why}: {shown}");
            let said = says::cannot_write(&stuck).unwrap();
            assert!(said.starts_with("The server says ") && said.contains(todo), "{why}: {said}");
        }
    }

    #[test]
    fn a_narrow_terminal_shows_which_session_waits_for_what() {
        let cells = [
            "k3x9q2a",
            "working",
            "3 permissions, 2 commands still run",
            "claude",
            "desk",
            "3 min ago",
            "Mend the tests",
        ];
        let mut table = table();
        table.row(cells.map(|cell| (Tone::Plain, cell.to_owned())));
        let row = |columns| table.lines(Some(columns), true)[1].render(None, false);
        for columns in [40, 60, 80] {
            let row = row(columns);
            assert!(row.chars().count() <= columns, "{columns}: {row}");
            assert!(row.starts_with("k3x9q2a  working  3 permissions"), "{columns}: {row}");
        }
        assert!(row(60).contains("Mend the"), "{}", row(60));
    }
}
