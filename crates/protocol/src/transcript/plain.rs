//! What a session asks and says as plain text, for pipes, logs and other programs.

use std::collections::HashSet;

use ensemble_types::ids::UserId;

use crate::transcript::body::{Block, Diff, Permission, PermissionOption, Question, ToolContent};
use crate::transcript::choices::option_digits;
use crate::transcript::view::{Asks, Card, Note};
use crate::transcript::visible;
use crate::transcript::words::ReceiptCode;

/// Why it is not known whether a device of the owner has written something.
pub fn unconfirmed(list: u32) -> String {
    format!("not confirmed: the server does not give version {list} of the device list, which the machine names")
}

/// Why a command was rejected.
pub fn rejection(code: Option<&ReceiptCode>, text: Option<&str>) -> String {
    let code = code.map_or("rejected", |code| code.as_str());
    match text {
        Some(text) => format!("{code}. {}", visible(text)),
        None => code.to_owned(),
    }
}

/// What is wrong with a message. `name`: how people are called.
pub fn note(note: &Note, name: impl Fn(UserId) -> String) -> String {
    match note {
        Note::Removed(user, text) => {
            let said = if text.is_empty() { "a command that counts for nothing".to_owned() } else { shortened(text) };
            format!("{} (a device that was removed): {said}", name(*user))
        }
        Note::NotSigned(why) => format!("a message that counts for nothing: {}", visible(why)),
        Note::Missing { from, to } if from == to => format!("message {from} of the machine is missing"),
        Note::Missing { from, to } => format!("messages {from} to {to} of the machine are missing"),
        Note::Repeated(n) => format!("message {n} of the machine came again"),
        Note::RepeatedCommand(id) => format!("the command {} came again", visible(id)),
        Note::Unreadable(why) => format!("a message cannot be read: {}", visible(why)),
    }
}

/// One short line, for a text that counts for nothing.
fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let line = visible(text).replace('\n', " ");
    if line.chars().count() > MOST { line.chars().take(MOST).chain(['…']).collect() } else { line }
}

/// What is asked, and while it is open what may be answered.
pub fn question_of(card: &Card) -> String {
    match &card.asks {
        Asks::Permission(permission) if card.resolved.is_some() => self::permission(permission),
        Asks::Permission(permission) => self::permission(permission) + &options(permission),
        Asks::Question(question) => self::question(question),
    }
}

fn permission(permission: &Permission) -> String {
    let mut text = format!("?? {}\n{}", visible(&permission.title), indented("    ", &permission.detail));
    text.push_str(&missing(permission.cut));
    for content in &permission.content {
        text.push('\n');
        text.push_str(&produced(content));
    }
    text
}

/// Each option with the digit that the screen has for it, or with its id.
fn options(permission: &Permission) -> String {
    let digits = option_digits(permission);
    let option = |option: &PermissionOption| {
        let digit = digits.iter().find(|(_, one)| one.option_id == option.option_id);
        match digit {
            Some((digit, _)) => format!("\n    {digit}  {}", visible(&option.name)),
            None => format!("\n    --option {}  {}", visible(&option.option_id), visible(&option.name)),
        }
    };
    permission.options.iter().map(option).collect()
}

fn question(question: &Question) -> String {
    let mut text = String::from("?? The agent asks");
    for item in &question.questions {
        text.push_str(&format!("\n    {}", visible(&item.text)));
        for option in item.options.iter().flatten() {
            text.push_str(&format!("\n      - {}", visible(&option.label)));
        }
    }
    text
}

/// What a tool has produced, below its line.
pub fn produced(content: &ToolContent) -> String {
    match content {
        ToolContent::Content { content: Block::Text { text }, cut } => {
            format!("{}{}", indented("    ", text), missing(*cut))
        }
        ToolContent::Diff(diff) => self::diff(diff),
        ToolContent::Terminal(terminal) => format!("{}{}", indented("    ", &terminal.output), missing(terminal.cut)),
        ToolContent::Content { .. } | ToolContent::Newer => "    (something newer than this program)".to_owned(),
    }
}

fn missing(cut: Option<u64>) -> String {
    cut.map(|bytes| format!("\n    ({bytes} bytes more)")).unwrap_or_default()
}

/// The lines that go and the lines that come.
fn diff(diff: &Diff) -> String {
    let mut text = format!("    {}", visible(&diff.path));
    for (mark, side) in [("-", diff.old_text.as_deref().unwrap_or_default()), ("+", diff.new_text.as_str())] {
        let (other, own) = match mark {
            "-" => (diff.new_text.as_str(), side),
            _ => (diff.old_text.as_deref().unwrap_or_default(), side),
        };
        let others: HashSet<&str> = other.lines().collect();
        for line in own.lines().filter(|line| !others.contains(line)) {
            text.push_str(&format!("\n    {mark} {}", visible(line)));
        }
    }
    text + &missing(diff.cut)
}

/// Each line behind this.
pub fn indented(by: &str, text: &str) -> String {
    text.lines().map(|line| format!("{by}{}", visible(line))).collect::<Vec<_>>().join("\n")
}
