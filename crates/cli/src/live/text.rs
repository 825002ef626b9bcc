//! A session as plain text, for pipes, logs and narrow places.

use ensemble_protocol::transcript::body::{Block, Diff, Permission, PermissionOption, Question, ToolCall, ToolContent};
use ensemble_protocol::transcript::view::{Asks, Author, Card, Item, Note, Shown, Taken};
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::{Outcome, TurnState};
use ensemble_screen::{control, option_digits};
use ensemble_types::ids::UserId;

use crate::when;

/// An item as a paragraph. `None`: it says nothing that a reader of a log misses. While more may come, what is not taken yet is not
/// said.
pub(crate) fn item(item: &Item, is_last_word: bool, name: impl Fn(UserId) -> String) -> Option<String> {
    let state = |taken: &Taken| match taken {
        Taken::NotYet if !is_last_word => String::new(),
        taken => state(taken),
    };
    let who = match &item.author {
        Author::Host if matches!(&item.shown, Shown::Prompt(..)) => "the task".to_owned(),
        Author::Host => String::new(),
        Author::Person { user, .. } => match item.unconfirmed {
            Some(list) => format!("{} ({})", name(*user), unconfirmed(list)),
            None => name(*user),
        },
        Author::Unknown(why) => why.clone(),
    };
    let at = item.at.map(|at| format!("{}  ", when::local(at))).unwrap_or_default();
    Some(match &item.shown {
        Shown::Prompt(prompt, taken) => format!("{at}{who}{}\n{}", state(taken), indented("> ", &prompt.text)),
        Shown::Answer(answer, taken) => {
            let chosen = answer.option_id.clone().unwrap_or_else(|| "an answer".to_owned());
            format!("{at}{who} answered: {}{}", visible(&chosen), state(taken))
        }
        Shown::Control(said, taken) => format!("{at}{who} {}{}", control(said, &name), state(taken)),
        Shown::Turn(turn) if turn.state == TurnState::Started => return None,
        Shown::Moved => return None,
        Shown::Turn(turn) => {
            let why = turn.stop_reason.as_ref().map_or("ended", |reason| reason.as_str());
            let cost = turn.cost_usd.map(|usd| format!(", ${usd:.4}")).unwrap_or_default();
            format!("{at}-- turn: {why}{cost}")
        }
        Shown::Text(part) => shown(&part.text),
        Shown::Thought(part) => indented("  ", &part.text),
        Shown::Tool(call) => tool(call),
        Shown::Card(card) => match card.resolved.as_ref().and_then(|resolved| resolved.by) {
            Some(by) => format!("{at}{} (by {})", self::card(card), name(by)),
            None => format!("{at}{}", self::card(card)),
        },
        Shown::Error(failure) => format!("{at}!! {}: {}", failure.code.as_str(), visible(&failure.text)),
        Shown::Note(note) => format!("   ({})", self::note(note, &name)),
        Shown::Newer(name) => format!("   ({}: something newer than this program)", visible(name)),
    })
}

/// Why it is not known whether a device of the owner has written something.
pub(crate) fn unconfirmed(list: u32) -> String {
    format!("not confirmed: the server does not give version {list} of the device list, which the machine names")
}

fn state(taken: &Taken) -> String {
    match taken {
        Taken::NotYet => " (not taken yet)".to_owned(),
        Taken::Queued | Taken::Done => String::new(),
        Taken::Rejected { code, text } => format!(" (rejected: {})", rejection(code.as_ref(), text.as_deref())),
    }
}

/// Why a command was rejected.
pub(crate) fn rejection(
    code: Option<&ensemble_protocol::transcript::words::ReceiptCode>,
    text: Option<&str>,
) -> String {
    let code = code.map_or("rejected", |code| code.as_str());
    match text {
        Some(text) => format!("{code}. {}", visible(text)),
        None => code.to_owned(),
    }
}

/// What is wrong with a message. `name`: how people are called.
pub(crate) fn note(note: &Note, name: impl Fn(UserId) -> String) -> String {
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

/// A call of a tool as one line, and what it has produced.
fn tool(call: &ToolCall) -> String {
    let status = call.status.as_ref().map_or("", |status| status.as_str());
    let title = call.title.as_deref().unwrap_or("a tool");
    let mut text = format!("* {} [{status}]", visible(title).replace('\n', " "));
    for content in call.content.iter().flatten() {
        text.push('\n');
        text.push_str(&produced(content));
    }
    text
}

fn produced(content: &ToolContent) -> String {
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
pub(crate) fn diff(diff: &Diff) -> String {
    let mut text = format!("    {}", visible(&diff.path));
    for (mark, side) in [("-", diff.old_text.as_deref().unwrap_or_default()), ("+", diff.new_text.as_str())] {
        let (other, own) = match mark {
            "-" => (diff.new_text.as_str(), side),
            _ => (diff.old_text.as_deref().unwrap_or_default(), side),
        };
        let others: std::collections::HashSet<&str> = other.lines().collect();
        for line in own.lines().filter(|line| !others.contains(line)) {
            text.push_str(&format!("\n    {mark} {}", visible(line)));
        }
    }
    text + &missing(diff.cut)
}

/// A request with its options, as a person needs it to answer.
pub(crate) fn card(card: &Card) -> String {
    let (mut text, is_question) = (question_of(card), matches!(card.asks, Asks::Question(_)));
    text.push('\n');
    text.push_str(&match &card.resolved {
        None => format!("   open; `ensemble answer SESSION --request {}` answers it", visible(&card.request_id)),
        Some(resolved) => match (&resolved.outcome, &resolved.option_id) {
            (Outcome::Selected, Some(option)) => format!("   answered: {}", visible(option)),
            (Outcome::Answered, _) if is_question => "   answered".to_owned(),
            _ => format!("   withdrawn: {}", visible(resolved.reason.as_deref().unwrap_or("no one is asked any more"))),
        },
    });
    text
}

/// What is asked, and while it is open what may be answered.
pub(crate) fn question_of(card: &Card) -> String {
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

fn shown(text: &str) -> String {
    text.lines().map(|line| visible(line).into_owned()).collect::<Vec<_>>().join("\n")
}

fn indented(by: &str, text: &str) -> String {
    text.lines().map(|line| format!("{by}{}", visible(line))).collect::<Vec<_>>().join("\n")
}
