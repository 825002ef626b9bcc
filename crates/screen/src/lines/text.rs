//! A session as plain text, for pipes, logs and narrow places.

use ensemble_protocol::transcript::body::ToolCall;
use ensemble_protocol::transcript::plain::{self, indented, produced, question_of, rejection, unconfirmed};
use ensemble_protocol::transcript::view::{Asks, Author, Card, Item, Shown, Taken};
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::{Outcome, TurnState};
use ensemble_types::ids::UserId;

use super::when;
use crate::words::control;

/// An item as a paragraph. `None`: it says nothing that a reader of a log misses. While more may come, what is not taken yet is not
/// said.
pub fn item(item: &Item, is_last_word: bool, name: impl Fn(UserId) -> String) -> Option<String> {
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
        Shown::Note(note) => format!("   ({})", plain::note(note, &name)),
        Shown::Newer(name) => format!("   ({}: something newer than this program)", visible(name)),
    })
}

fn state(taken: &Taken) -> String {
    match taken {
        Taken::NotYet => " (not taken yet)".to_owned(),
        Taken::Queued | Taken::Done => String::new(),
        Taken::Rejected { code, text } => format!(" (rejected: {})", rejection(code.as_ref(), text.as_deref())),
    }
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

/// A request with its options, as a person needs it to answer.
pub fn card(card: &Card) -> String {
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

fn shown(text: &str) -> String {
    text.lines().map(|line| visible(line).into_owned()).collect::<Vec<_>>().join("\n")
}
