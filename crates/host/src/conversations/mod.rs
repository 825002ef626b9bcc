//! The conversations that a person has begun with the agents themselves, in a directory of this machine.
//!
//! Nothing of them leaves the machine. What the agents have written is as little trusted as what they say: each look is bounded in size
//! and time.

mod claude;
mod codex;
mod in_use;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_agent::Kind;
use ensemble_process::disk::on_disk;
use ensemble_protocol::transcript::visible;
use ensemble_types::ids::SessionId;
use ensemble_types::line::{inline, short};
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;
use serde::Serialize;
use tokio::time::timeout;

use crate::agent::Known;
use crate::settings::Environment;
use crate::spool::Spool;

pub use in_use::InUse;

/// Characters of a first prompt.
const LONGEST_PROMPT: usize = 200;

/// A program that has written within this time may write again.
const JUST_NOW: Duration = Duration::from_secs(60);

/// A disk that takes longer is left out.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// A conversation of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The agent's name, as in `claude`.
    pub agent: String,
    /// The agent's own id.
    pub id: String,
    /// In one line, with hidden characters written out. Empty: it was not found.
    pub first_prompt: String,
    pub changed_at: Timestamp,
    /// Why a program may work with it.
    pub in_use: Option<InUse>,
    /// The session of this computer that continues it.
    #[serde(skip)]
    pub session: Option<Ref>,
}

/// What an agent has on its disk or in its lists, before it is known who works with it.
struct Found {
    id: String,
    first_prompt: String,
    changed: Timestamp,
    file: Option<PathBuf>,
}

/// The conversations that a person has begun with an agent itself in this directory, the newest first. Sessions below the folder
/// `hosts` may continue them. The directory is the one without links.
///
/// # Errors
/// They cannot be found out. The text is for people.
pub async fn list(
    (agent, known): (&str, &Known),
    environment: &Environment,
    directory: &Path,
    hosts: PathBuf,
) -> Result<Vec<Conversation>, String> {
    let env = known.env(environment, &BTreeMap::new());
    let (found, folder) = match known.kind {
        Kind::Claude => {
            let Some(folder) = claude::folder(&env) else { return Ok(Vec::new()) };
            let (place, directory) = (folder.clone(), directory.to_owned());
            (within(move || claude::list(&place, &directory)).await?, Some(folder))
        }
        Kind::Codex => (codex::list(known, &env, environment, directory).await?, None),
        Kind::Gemini | Kind::Opencode | Kind::Acp => return Ok(Vec::new()),
    };
    let agent = agent.to_owned();
    let mut all = within(move || {
        let (ours, opened, now) = (of_sessions(&hosts)?, in_use::Opened::now(folder.as_deref()), super::clock());
        let known = |Found { id, first_prompt, changed, file }| {
            let open = opened.process_of(&id, file.as_deref()).map(InUse::Open);
            // A file of the future was changed by another clock.
            let is_new = changed.plus(JUST_NOW) > now;
            Conversation {
                agent: agent.clone(),
                first_prompt: prompt(&first_prompt),
                changed_at: changed,
                in_use: open.or(is_new.then_some(InUse::JustChanged)),
                session: ours.get(&(agent.clone(), id.clone())).map(Ref::of),
                id,
            }
        };
        Ok(found.into_iter().map(known).collect::<Vec<_>>())
    })
    .await?;
    all.sort_by_key(|conversation| Reverse(conversation.changed_at));
    Ok(all)
}

async fn within<T: Send + 'static>(look: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, String> {
    let looked = timeout(READ_WITHIN, on_disk(look)).await;
    looked.map_err(|_| "The disk does not answer.".to_owned())?.map_err(|error| format!("{error}."))
}

/// A prompt as it is shown.
fn prompt(text: &str) -> String {
    // One is cut before its characters are looked at: it may have megabytes.
    let begins: String = text.trim_start().chars().take(4 * LONGEST_PROMPT).collect();
    short(&inline(&visible(&begins)), LONGEST_PROMPT)
}

/// The sessions below a folder of hosts that continue conversations, by the agent and its id of the conversation.
///
/// # Errors
/// The folder cannot be read.
fn of_sessions(hosts: &Path) -> io::Result<BTreeMap<(String, String), SessionId>> {
    let mut all = BTreeMap::new();
    let folders = match std::fs::read_dir(hosts) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        folders => folders?,
    };
    for folder in folders {
        all.extend(of_host(&folder?.path().join("sessions"))?);
    }
    Ok(all)
}

fn of_host(sessions: &Path) -> io::Result<BTreeMap<(String, String), SessionId>> {
    let cards = match Spool::cards(sessions) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Vec::new(),
        cards => cards?,
    };
    Ok(cards.into_iter().filter_map(|card| Some(((card.agent, card.conversation?), card.session))).collect())
}

/// Why a conversation cannot be taken over, and what to do.
pub fn continued_by(session: &Ref) -> String {
    format!("Session {session} continues this conversation: `ensemble attach {session}`.")
}

/// Two agents in one conversation would mix their turns.
pub(crate) async fn refuse(sessions: &Path, agent: &str, id: &str) -> Result<(), String> {
    let sessions = sessions.to_owned();
    let continued = on_disk(move || of_host(&sessions)).await.map_err(|error| format!("{error}."))?;
    match continued.get(&(agent.to_owned(), id.to_owned())) {
        Some(session) => Err(taken(&Ref::of(session))),
        None => Ok(()),
    }
}

fn taken(session: &Ref) -> String {
    format!(
        "Session {session} continues this conversation: `ensemble attach {session}`. --copy continues a copy of it."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Kept;

    #[test]
    fn a_first_prompt_is_one_short_line_without_hidden_characters() {
        assert_eq!(prompt("\n fix it\nnow\u{202e}\u{1b}[2J "), r"fix it now\u{202e}\u{1b}[2J");
        let long = prompt(&"é".repeat(1 << 20));
        assert_eq!((long.chars().count(), long.chars().last()), (LONGEST_PROMPT, Some('…')));
        assert!(prompt(&"\u{0}".repeat(1 << 20)).chars().count() <= LONGEST_PROMPT);
    }

    #[tokio::test]
    async fn a_conversation_that_a_session_continues_is_refused_to_another() {
        let hosts = tempfile::tempdir().unwrap();
        let sessions = hosts.path().join("m-1/sessions");
        let continues = |fork: bool, resume: &str| {
            let new = Kept::new(SessionId::generate(), "claude".into(), "/w".into(), "k".into());
            let kept = Kept { resume: Some(resume.to_owned()), fork, ..new };
            std::fs::create_dir_all(&sessions).unwrap();
            Spool::create(&sessions, &kept).unwrap();
            kept.session
        };
        assert!(of_sessions(&hosts.path().join("none")).unwrap().is_empty());
        let session = continues(false, "mine");
        continues(true, "copied");
        std::fs::write(hosts.path().join("a file"), "").unwrap();
        let all = of_sessions(hosts.path()).unwrap();
        assert_eq!(all, BTreeMap::from([(("claude".to_owned(), "mine".to_owned()), session)]));
        let refused = refuse(&sessions, "claude", "mine").await.unwrap_err();
        assert!(refused.contains(Ref::of(&session).as_str()), "{refused}");
        for (agent, id) in [("claude", "copied"), ("codex", "mine")] {
            assert_eq!(refuse(&sessions, agent, id).await, Ok(()));
        }
    }
}
