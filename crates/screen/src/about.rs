//! What the screen needs besides the transcript: the reader, their directory and connection, and what the terminal can show.

use std::time::Instant;

use ensemble_protocol::transcript::view::View;
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::UserId;
use ensemble_types::sessions::{AccessLevel, Session};

/// What is around the transcript. The caller builds it for each call.
pub struct About<'a> {
    /// Of the session.
    pub title: &'a str,
    pub connection: Connection,
    /// What this person may command. The host decides; the screen only offers what can succeed.
    pub level: Level,
    pub me: &'a Me,
    /// Whose session it is.
    pub owner: UserId,
    /// The name of a user. The screen makes it fit and visible.
    pub name: &'a dyn Fn(UserId) -> String,
    /// The home directory of the person, which is shown as `~`.
    pub home: &'a str,
    /// The time. It decides what was typed too soon after a card appeared.
    pub now: Instant,
}

/// A path with `~` for this home directory.
pub fn below(home: &str, path: &str) -> String {
    let home = home.trim_end_matches('/');
    match path.strip_prefix(home) {
        Some(below) if !home.is_empty() && (below.is_empty() || below.starts_with('/')) => format!("~{below}"),
        _ => path.to_owned(),
    }
}

/// The person at this screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    pub user: UserId,
    /// The public key that signs this screen's commands, as in [`ensemble_protocol::transcript::view::Author::Person`].
    pub key: String,
}

/// Whether what is shown is what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    Online,
    Connecting,
    /// The server can be reached, and the session's machine cannot.
    MachineAway,
    /// The machine cannot write down what happens, so no agent works in the session.
    AgentStopped,
    /// The machine has no key under which it can send what the agent does, by the server's word.
    CannotWrite,
    /// The address holds streams back, so what is new comes late and live text does not come.
    HeldBack,
}

/// What a person may command. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Read,
    /// Prompts and interrupts.
    Prompt,
    /// Answers, and chooses the model.
    Approve,
    /// Everything.
    Owner,
}

impl Connection {
    /// `has_problem`: the machine says that it cannot write down what happens. `is_held_back`: the address holds streams back.
    pub fn of(session: &Session, is_connected: bool, has_problem: bool, is_held_back: bool) -> Self {
        match (is_connected, session.online) {
            (false, _) => Self::Connecting,
            (true, false) => Self::MachineAway,
            (true, true) if has_problem => Self::AgentStopped,
            (true, true) if session.cannot_write.is_some() => Self::CannotWrite,
            (true, true) if is_held_back => Self::HeldBack,
            (true, true) => Self::Online,
        }
    }
}

impl Level {
    /// What this user may command, as far as the machine has said it.
    pub fn of(user: UserId, session: &Session, view: &View) -> Self {
        if session.access_level == AccessLevel::Owner {
            return Self::Owner;
        }
        let access = view.state().map(|state| state.access.as_slice()).unwrap_or_default();
        match access.iter().find(|grant| grant.user == user).map(|grant| &grant.may) {
            Some(May::Approve) => Self::Approve,
            Some(May::Prompt) => Self::Prompt,
            _ => Self::Read,
        }
    }
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: bool,
    /// Characters beyond ASCII in what the screen itself draws.
    pub unicode: bool,
}

impl Look {
    /// From `NO_COLOR` (no-color.org), `TERM` and the locale (POSIX: `LC_ALL` before `LC_CTYPE` before `LANG`).
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_lowercase();
        let is_plain = matches!(set("TERM").as_deref(), None | Some("dumb"));
        Self {
            colour: set("NO_COLOR").is_none() && !is_plain,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }
}

impl Connection {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Connecting => "connecting…",
            Self::MachineAway => "the machine is away",
            Self::AgentStopped => "disk not writable",
            Self::CannotWrite => "the machine cannot send",
            Self::HeldBack => "This address holds live text back",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_look_is_what_the_terminal_can() {
        let look = |set: &[(&str, &str)]| {
            let look =
                Look::of(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()));
            (look.colour, look.unicode)
        };
        assert_eq!(look(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]), (true, true));
        assert_eq!(look(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]), (true, false));
        assert_eq!(look(&[("TERM", "xterm"), ("LC_CTYPE", "C.utf8"), ("NO_COLOR", "1")]), (false, true));
        assert_eq!(look(&[("TERM", "xterm"), ("NO_COLOR", "")]), (true, false), "empty is not set");
        assert_eq!(look(&[("TERM", "dumb")]), (false, false));
    }
}
