//! What is kept of a session apart from its log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ensemble_types::ids::SessionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::unusable;
use crate::kept::{Change, Kept};

pub(super) const CARD: &str = "session.json";

/// What a session cannot continue without. It is in a separate file, which is replaced as a whole and seldom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Card {
    pub(crate) session: SessionId,
    pub(crate) agent: String,
    pub(crate) directory: PathBuf,
    /// The session's keys, sealed to this machine.
    pub(crate) host_key: String,
    /// As in [`Kept`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_key: Option<u32>,
    /// Marks the processes of the agent that was started last.
    pub(crate) process: Option<Uuid>,
    /// The agent's id of its conversation. No other session continues that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<String>,
}

impl Card {
    pub(super) fn of(kept: &Kept) -> Self {
        let conversation = kept.own_conversation();
        let Kept { session, agent, directory, host_key, old_key, process, .. } = kept.clone();
        Self { session, agent, directory, host_key, old_key, process, conversation }
    }

    /// Applies a change. False: it is not about what the card says.
    pub(super) fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::HostKey(sealed) => self.host_key.clone_from(sealed),
            Change::OldKey(epoch) => self.old_key = self.old_key.max(Some(*epoch)),
            Change::Process(id) => self.process = Some(*id),
            Change::Conversation(id) => self.conversation = Some(id.clone()),
            Change::Forget(id) => self.conversation = Some(id.to_string()),
            _ => return false,
        }
        true
    }
}

/// # Errors
/// The disk cannot be read now. `InvalidData`: there is no card, or it is damaged.
pub(super) fn read(folder: &Path) -> io::Result<Card> {
    match fs::read(folder.join(CARD)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(unusable(format!("{CARD} is missing"))),
        text => serde_json::from_slice(&text?).map_err(|error| unusable(format!("{CARD}: {error}"))),
    }
}
