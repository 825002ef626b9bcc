//! gemini names the file of a conversation by the minute in which it has begun it, and by the id. When it loads the conversation in the
//! same minute it first begins a new one with the same name, which takes the place of the old one (checked with 0.61.0).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ensemble_agent::Kind;
use ensemble_process::disk::on_disk;
use ensemble_types::time::Timestamp;

use super::Known;
use crate::settings::Environment;
use crate::wake::wall_clock;

const MINUTE: u64 = 60;

/// Waits until this conversation can be resumed without losing it.
pub async fn until_resumable(known: &Known, environment: &Environment, conversation: &str) {
    if known.kind != Kind::Gemini {
        return;
    }
    let env = known.env(environment, &BTreeMap::new());
    let Some(home) = env.get("GEMINI_CLI_HOME").or(env.get("HOME")) else { return };
    let (folder, conversation) = (Path::new(home).join(".gemini/tmp"), conversation.to_owned());
    let since = wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    let has_begun = move || Ok(has_begun_in(&folder, &conversation, since.as_secs()));
    if on_disk(has_begun).await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_secs(MINUTE - since.as_secs() % MINUTE)).await;
    }
}

/// Whether the conversation has begun in the minute of this time.
fn has_begun_in(folder: &Path, conversation: &str, unix_seconds: u64) -> bool {
    let now = Timestamp::from_unix_seconds(0).plus(Duration::from_secs(unix_seconds)).to_string();
    // "2026-11-30T06:04:17.520Z" begins with the minute.
    let minute = now.get(..16).unwrap_or_default().replace(':', "-");
    let name = format!("session-{minute}-{}.jsonl", conversation.get(..8).unwrap_or(conversation));
    let projects = std::fs::read_dir(folder).into_iter().flatten().flatten();
    projects.map(|project| project.path()).any(|project: PathBuf| project.join("chats").join(&name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_found_in_its_minute_only() {
        let folder = tempfile::tempdir().unwrap();
        let chats = folder.path().join("work/chats");
        std::fs::create_dir_all(&chats).unwrap();
        std::fs::write(chats.join("session-2026-11-30T06-04-bd00d283.jsonl"), "").unwrap();
        let at = 1_796_018_640;
        assert_eq!(Timestamp::from_unix_seconds(at).to_string().get(..16), Some("2026-11-30T06:04"));
        let found = |id: &str, at: i64| has_begun_in(folder.path(), id, at.unsigned_abs());
        let id = "bd00d283-0c9d-4a31-b701-59ad43c8e7a0";
        assert!(found(id, at) && found(id, at + 59));
        assert!(!found(id, at - 1) && !found(id, at + 60) && !found("01a22b0e-e1b8", at));
    }
}
