//! What a person reads for the words of the format.

use ensemble_protocol::transcript::body::{Control, Failure};
use ensemble_protocol::transcript::view::{Author, Note, Taken};
use ensemble_protocol::transcript::words::{ErrorCode, May, Mode, ReceiptCode, StopReason};
use ensemble_types::ids::UserId;

use crate::about::Level;
use crate::clean::line;
use crate::transcript::block::Setting;

/// What is shown next to a command until it is done.
pub(crate) fn taken(taken: &Taken) -> Option<&'static str> {
    match taken {
        Taken::NotYet => Some("not taken yet"),
        Taken::Queued => Some("queued"),
        Taken::Done => None,
        Taken::Rejected { code: Some(ReceiptCode::TakenBack), .. } => Some("taken back"),
        Taken::Rejected { .. } => Some("not taken"),
    }
}

/// What a host writes about each command that its owner has not allowed. It knows no names.
const NOT_ALLOWED: &str = "The owner has not allowed this to you.";

/// Why the host did not take a command that this person has sent. `None`: it did, or has not said, or a person has taken it back.
pub(crate) fn rejection(taken: &Taken, author: &Author, setting: &Setting<'_>) -> Option<String> {
    let Taken::Rejected { code, text } = taken else { return None };
    if *code == Some(ReceiptCode::TakenBack) {
        return None;
    }
    let says_nothing = text.as_deref().is_none_or(|text| text.trim().is_empty() || text == NOT_ALLOWED);
    if *code == Some(ReceiptCode::NotAllowed) && says_nothing {
        return Some(not_allowed(author, setting));
    }
    if let Some(text) = text.as_deref().filter(|text| !text.trim().is_empty()) {
        return Some(line(text, 400));
    }
    let words = match code {
        None => "The machine did not say why.",
        Some(ReceiptCode::NotAllowed) => "It is not allowed.",
        Some(ReceiptCode::BadSignature) => "Its signature is not good.",
        Some(ReceiptCode::UnknownKey) => "The machine does not know this device yet. Try again soon.",
        Some(ReceiptCode::Stale) => "It reached the machine too late. Send it again.",
        Some(ReceiptCode::Repeated) => "It was sent twice.",
        Some(ReceiptCode::Superseded) => "What it was about has changed or is over.",
        Some(ReceiptCode::OldKey) => "It was sealed with an old key. Send it again.",
        Some(ReceiptCode::WrongDirectory) => "The session works in another directory than the one that was shown.",
        Some(ReceiptCode::Busy) => "Too many commands. Wait a minute.",
        Some(ReceiptCode::Unsupported) => "This agent cannot do it.",
        Some(code @ (ReceiptCode::TakenBack | ReceiptCode::Other(_))) => return Some(line(code.as_str(), 60)),
    };
    Some(words.to_owned())
}

fn not_allowed(author: &Author, setting: &Setting<'_>) -> String {
    let owner = setting.about.owner;
    match author {
        // Some commands are for its first devices only.
        Author::Person { user, .. } if *user == owner => "This device may not do this.".to_owned(),
        Author::Person { user, .. } => {
            let me = setting.about.me.user;
            let who = if *user == me { "you".to_owned() } else { setting.name(*user) };
            let (owner, has) = if owner == me { ("You".to_owned(), "have") } else { (setting.name(owner), "has") };
            format!("{owner} {has} not allowed this to {who}.")
        }
        Author::Host | Author::Unknown(_) => "It is not allowed.".to_owned(),
    }
}

/// What a control does, to stand after the name of the person who sent it: "stopped the agent". `name` is how a user is called.
pub fn control(control: &Control, name: impl Fn(UserId) -> String) -> String {
    match control {
        Control::Interrupt => "interrupted".to_owned(),
        Control::SetMode(set) => format!("set the mode to {}", mode(&set.mode)),
        Control::SetModel(set) => format!("chose the model {}", line(&set.model, 60)),
        Control::Stop => "stopped the agent".to_owned(),
        Control::Resume(_) => "started the agent again".to_owned(),
        Control::Access(grant) => {
            let may = match &grant.may {
                May::Prompt => "may prompt now",
                May::Approve => "may prompt and answer now",
                May::Nothing if grant.removed => "has no access any more",
                May::Nothing => "may only read now",
                May::Other(_) => "has another right now",
            };
            format!("said that {} {may}", name(grant.user))
        }
        Control::TakeBack(_) => "took a prompt back".to_owned(),
        Control::Newer(action) => format!("did something newer ({})", line(action, 60)),
    }
}

pub(crate) fn mode(mode: &Mode) -> String {
    line(mode.as_str(), 32)
}

/// How a turn ended, unless it ended as it should.
pub(crate) fn stop(reason: Option<&StopReason>) -> Option<String> {
    Some(match reason? {
        StopReason::EndTurn => return None,
        StopReason::Cancelled => "interrupted".to_owned(),
        StopReason::MaxTokens => "stopped: the answer reached its longest length".to_owned(),
        StopReason::Refusal => "the model refused".to_owned(),
        StopReason::Limit => "stopped: a limit of cost or use is reached".to_owned(),
        StopReason::Error => "stopped by an error".to_owned(),
        StopReason::Other(other) => format!("stopped: {}", line(other, 60)),
    })
}

/// `level`: the reader's access level.
pub(crate) fn failure(failure: &Failure, level: Level) -> String {
    let what = match &failure.code {
        ErrorCode::Login => "The agent is not signed in",
        ErrorCode::Quota => "The agent's limit is reached",
        ErrorCode::Overloaded => "The model is overloaded",
        ErrorCode::Context => "The conversation is lost, or too long for the model",
        ErrorCode::Crashed => "The agent ended unexpectedly",
        _ => "The agent failed",
    };
    let retry = failure.retry_at.map(|at| format!(" (again at {at})")).unwrap_or_default();
    let advice = if failure.code == ErrorCode::Context && level >= Level::Prompt {
        " /insert writes the last messages into the field."
    } else {
        ""
    };
    format!("{what}: {}{retry}{advice}", line(&failure.text, 2_000))
}

pub(crate) fn note(note: &Note, name: impl Fn(UserId) -> String) -> String {
    match note {
        Note::Removed(user, text) => {
            let said = if text.is_empty() { "a command that counts for nothing".to_owned() } else { line(text, 200) };
            format!("{} (a device that was removed): {said}", name(*user))
        }
        Note::NotSigned(why) => line(why, 200),
        Note::Missing { from, to } if from == to => format!("message {from} of the machine is missing"),
        Note::Missing { from, to } => format!("messages {from} to {to} of the machine are missing"),
        Note::Repeated(n) => format!("message {n} of the machine came twice"),
        Note::RepeatedCommand(_) => "a command came twice".to_owned(),
        Note::Unreadable(why) => format!("a message cannot be read: {}", line(why, 200)),
    }
}
