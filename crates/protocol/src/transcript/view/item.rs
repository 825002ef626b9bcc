//! What a screen shows, one item after the other.

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use crate::transcript::body::{
    Answer, Attachment, Control, Failure, Permission, Prompt, Question, Receipt, Resolved, TextPart, ToolCall, Turn,
};
use crate::transcript::words::{ReceiptCode, ReceiptOutcome};

/// Who a message is by, as the caller has found from its signature and the device lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// The session's machine, by its key in the owner's list.
    Host,
    /// A primary or linked key of this user.
    Person {
        user: UserId,
        key: String,
        /// The version of the owner's list that removed the key. The key counts until the machine names that list or a later one: a command
        /// after that is a [`Note::Removed`].
        removed_in: Option<u32>,
    },
    /// Any other signer, or none. The text says why, as in "not signed by a device of Ann".
    Unknown(String),
}

impl Author {
    /// The user of the device, if this list or an earlier one removed it.
    pub(super) fn removed_by(&self, list: u32) -> Option<UserId> {
        match self {
            Self::Person { user, removed_in: Some(version), .. } if *version <= list => Some(*user),
            _ => None,
        }
    }
}

/// One thing on the screen. Its place is the first message that made it; a prompt that has waited has that of its turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Rises with each item, and is never used again.
    pub id: u64,
    /// Of the message that made it.
    pub seq: u64,
    pub author: Author,
    /// The machine had named this list of the owner before, and the server does not give it: whether the author's device was in it is not
    /// known.
    pub unconfirmed: Option<u32>,
    /// The id that the writer gave its message. Empty in notes. `state.queue` and `turn.promptId` name it.
    pub local_id: String,
    /// By the writer's clock. `None` in notes.
    pub at: Option<Timestamp>,
    pub shown: Shown,
}

/// What an item shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Prompt(Prompt, Taken),
    Answer(Answer, Taken),
    Control(Control, Taken),
    Turn(Turn),
    Text(TextPart),
    Thought(TextPart),
    Tool(Box<ToolCall>),
    Card(Box<Card>),
    Error(Failure),
    Note(Note),
    /// Nothing: the prompt that came here has waited, and stands where its turn begins.
    Moved,
    /// A type that this version does not know: "something newer".
    Newer(Box<str>),
}

/// Whether the host has taken a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// No receipt has come.
    NotYet,
    Queued,
    Done,
    Rejected {
        code: Option<ReceiptCode>,
        text: Option<String>,
    },
}

/// A request of the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub request_id: String,
    /// What an answer to it names.
    pub digest: String,
    pub asks: Asks,
    /// `None`: it is open.
    pub resolved: Option<Resolved>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Asks {
    Permission(Permission),
    Question(Question),
}

/// Something about the transcript itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A message whose author may not write it. Its text is not shown as a card and is not obeyed.
    NotSigned(String),
    /// A command from a device of this person that the machine knew to be removed, with its text if it is a prompt. It counts for nothing.
    Removed(UserId, String),
    /// Messages of the host are missing: these counts, the ends included.
    Missing { from: u64, to: u64 },
    /// The host's message with this count came before, so this one is not shown.
    Repeated(u64),
    /// A command with this id came before.
    RepeatedCommand(String),
    /// A message that cannot be read.
    Unreadable(String),
}

impl Taken {
    pub(super) fn of(receipt: Receipt) -> Self {
        match receipt.outcome {
            ReceiptOutcome::Queued => Self::Queued,
            ReceiptOutcome::Done => Self::Done,
            _ => Self::Rejected { code: receipt.code, text: receipt.text },
        }
    }
}

impl Shown {
    /// Its bytes, roughly, to bound what is kept.
    pub(super) fn size(&self) -> usize {
        const EACH: usize = 200;
        EACH + match self {
            Self::Prompt(prompt, _) => {
                prompt.text.len() + prompt.attachments.iter().map(Attachment::size).sum::<usize>()
            }
            Self::Text(part) | Self::Thought(part) => part.text.len(),
            Self::Tool(call) => call.size(),
            Self::Card(card) => match &card.asks {
                Asks::Permission(permission) => {
                    permission.detail.len() + permission.content.iter().map(|one| one.size()).sum::<usize>()
                }
                Asks::Question(question) => question.questions.iter().map(|one| one.text.len()).sum(),
            },
            Self::Error(failure) => failure.text.len(),
            Self::Note(Note::NotSigned(text) | Note::Unreadable(text) | Note::Removed(_, text)) => text.len(),
            _ => 0,
        }
    }

    /// What has become of a command. `None`: it is none.
    pub fn taken(&self) -> Option<&Taken> {
        match self {
            Self::Prompt(_, taken) | Self::Answer(_, taken) | Self::Control(_, taken) => Some(taken),
            _ => None,
        }
    }

    pub(super) fn taken_mut(&mut self) -> Option<&mut Taken> {
        match self {
            Self::Prompt(_, taken) | Self::Answer(_, taken) | Self::Control(_, taken) => Some(taken),
            _ => None,
        }
    }
}

/// The name of a command: the key that signed it and its `localId`.
pub(super) fn command(item: &Item) -> Option<(String, String)> {
    match (&item.author, &item.shown) {
        (Author::Person { key, .. }, Shown::Prompt(..) | Shown::Answer(..) | Shown::Control(..)) => {
            Some((key.clone(), item.local_id.clone()))
        }
        _ => None,
    }
}
