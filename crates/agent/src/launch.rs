//! How each agent's program is started.

use std::collections::BTreeMap;

use ensemble_transcript::words::Mode;

use crate::command::{Refused, Start};
use crate::drivers::{Kind, acp, claude, codex};

/// The arguments after the program's name, and variables beside those that it inherits. Never passed through a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

impl Launch {
    pub(crate) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    pub(crate) fn option(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.args([name, value]),
            None => self,
        }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// How to start the agent for a session. A mode that is not one of ours is refused: an agent's own "auto" mode, in which a
/// classifier decides instead of a person, is never chosen.
pub fn launch(kind: Kind, start: &Start) -> Result<Launch, Refused> {
    if matches!(start.mode, Mode::Other(_)) {
        return Err(Refused::Unsupported("the mode is none of ask, edit, plan and bypass"));
    }
    // A value that begins with a hyphen would be read as an option.
    if [&start.model, &start.resume].into_iter().flatten().any(|value| value.is_empty() || value.starts_with('-')) {
        return Err(Refused::Unsupported("the model or the conversation has no valid name"));
    }
    Ok(match kind {
        Kind::Claude => claude::launch(start),
        Kind::Codex => codex::launch(start),
        Kind::Gemini | Kind::Opencode | Kind::Acp => acp::launch(kind, start),
    })
}
