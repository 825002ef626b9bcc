//! What the runner needs to know about a coding agent: how to call it and how to read its output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::transcript::Transcript;

/// One kind of coding agent.
pub(super) trait Agent: Sync {
    /// The variables that the program may inherit, beside those that all programs may. A name that ends in `*` is a
    /// prefix.
    fn inherits(&self) -> &'static [&'static str];

    /// How to start the program.
    fn invocation(&self, call: &Call<'_>) -> Invocation;

    /// Reads one JSON line of the program's output.
    fn read(&self, event: &Value, transcript: &mut Transcript);

    /// Whether standard error says that the session to resume does not exist. For programs that print no JSON then.
    fn lost_session(&self, stderr: &str) -> bool {
        let _ = stderr;
        false
    }
}

/// What a provider's program may do without asking. Nobody can answer its questions, so everything else is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Only what the program allows by default, mostly reading.
    Ask,
    /// It may also change files in its working directory.
    #[default]
    Edit,
    /// It may do everything that the runner's account may do. Each such attempt is logged.
    Bypass,
}

impl std::str::FromStr for Permission {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ask" => Ok(Self::Ask),
            "edit" => Ok(Self::Edit),
            "bypass" => Ok(Self::Bypass),
            _ => Err("must be ask, edit or bypass"),
        }
    }
}

/// One call of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// `None`: the program chooses.
    pub(crate) model: Option<&'a str>,
    /// The program's session to resume.
    pub(crate) resume: Option<&'a str>,
    pub(crate) permission: Permission,
    /// Arguments from the configuration.
    pub(crate) extra: &'a [String],
    /// Whether the runner is root. Some programs require a confirmation for that.
    pub(crate) as_root: bool,
}

/// The arguments of a call, and additional variables that the program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<&'static str, &'static str>,
}

impl Invocation {
    pub(super) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(super) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    pub(super) fn option(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.arg(name).arg(value),
            None => self,
        }
    }

    pub(super) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.insert(name, value);
        self
    }
}
