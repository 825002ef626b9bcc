//! What a machine answers to each look. Texts are shown to people: hidden characters are written out (`transcript::visible`).

use ensemble_types::changes::ChangedFile;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transcript::words::{ReceiptCode, words};

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answered<T> {
    Refused(Refusal),
    With(T),
}

/// Why a listed device gets no other answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: ReceiptCode,
    /// What happened and what to do.
    pub text: String,
}

/// A part of a text. The next one begins where it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub text: String,
    /// Of the whole text.
    pub bytes: u64,
    /// SHA-256 of the whole text, base64url. Parts with different ones are of different texts.
    pub digest: String,
    /// How many bytes the whole text lacks, because it was longer than its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
}

/// Names below a directory, by path, each relative to the session's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    pub names: Vec<Entry>,
    /// There are more than fit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: String,
    /// `other` for what cannot be opened, also because of its name.
    pub kind: EntryKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// git ignores it, or outside of git its name begins with a dot: it may hold secrets, and guests do not see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
}

words! {
    EntryKind { File = "file", Directory = "directory", Link = "link", }
}

impl EntryKind {
    /// A pipe, a device, a socket, or something with a name that cannot be typed.
    pub fn other() -> Self {
        Self::of("other")
    }
}

/// A part of a file, of which its first 512 KiB can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// Of the whole file.
    pub bytes: u64,
    /// When it was changed last.
    pub at: Timestamp,
    /// SHA-256 of what can be asked for, base64url. Parts with different ones are of different files.
    pub digest: String,
    pub kind: FileKind,
    /// The bytes from `from` on, base64url. Empty: none are left.
    pub data: String,
}

words! {
    FileKind { Text = "text", Picture = "picture", }
}

impl FileKind {
    pub fn other() -> Self {
        Self::of("other")
    }
}

/// What git says of the session's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitState {
    /// SHA-256 of the rest as the machine has written it, base64url: two states with one `seen` are the same.
    pub seen: String,
    /// The commit. Absent: there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What the branch follows, as far as it is known on the machine, and how many commits each has that the other lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<Remote>,
    /// The first files by name, as tasks have them.
    pub files: Vec<ChangedFile>,
    pub file_count: u32,
    pub added: u64,
    pub removed: u64,
    /// What a person has to know to read it: that the session's beginning is known by its commit only, for example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    pub name: String,
    /// Without user and password.
    pub url: String,
}

/// The newest commits, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitLog {
    pub commits: Vec<Commit>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub id: String,
    pub author: String,
    pub at: Timestamp,
    pub subject: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directories {
    pub directories: Vec<Directory>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// An absolute path on the machine.
    pub path: String,
    /// A session was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recent: bool,
}

/// The agents' own conversations in a directory, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversations {
    pub conversations: Vec<EarlierConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierConversation {
    /// The agent's name, as in `claude`.
    pub agent: String,
    /// The agent's own id.
    pub id: String,
    /// At most 200 characters in one line. Empty: it was not found.
    pub first_prompt: String,
    pub changed_at: Timestamp,
    /// Why a program may work with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<InUse>,
}

words! {
    InUse {
        /// It was changed within the last minute.
        JustChanged = "just_changed",
        /// A process has it open.
        Open = "open",
    }
}

/// Turns of a conversation of an agent from the one that was asked for on. They are not signed, and no messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    pub turns: Vec<EarlierTurn>,
    /// How many the conversation has.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierTurn {
    pub by: TurnBy,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

words! {
    TurnBy { Person = "person", Agent = "agent", }
}
