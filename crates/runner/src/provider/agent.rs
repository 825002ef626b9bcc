//! What the runner needs to know about a coding agent: how to call it and how to read its output.

use std::collections::BTreeMap;

use ensemble_types::runs::Permission;
use serde_json::Value;

use super::costs::CostBounds;
use super::sign_in::Check;
use super::transcript::Transcript;

/// One kind of coding agent.
pub(super) trait Agent: Sync {
    /// The variables that the program may inherit, in addition to those of all programs. A name that ends in `*` is a
    /// prefix.
    fn inherits(&self) -> &'static [&'static str];

    /// How to find out whether the program is signed in.
    fn sign_in(&self, environment: &BTreeMap<String, String>, args: &[String]) -> Check;

    /// How to start the program.
    fn invocation(&self, call: &Call<'_>) -> Invocation;

    /// Reads one JSON line of the program's output.
    fn read(&self, event: &Value, transcript: &mut Transcript);

    /// Whether the program takes patterns of tools that it may use without asking.
    fn takes_tools(&self) -> bool {
        false
    }

    /// Whether the program gave up because a limit of use is reached, as its exit code says. For programs whose output has no field
    /// for it.
    fn exits_at_limit(&self, code: i32) -> bool {
        let _ = code;
        false
    }

    /// Whether standard error says that the session to resume does not exist. For programs that print no JSON then.
    fn lost_session(&self, stderr: &str) -> bool {
        let _ = stderr;
        false
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
    /// Patterns of tools that it may use as well. Only for agents that take them.
    pub(crate) allowed_tools: &'a [String],
    /// Arguments from the configuration.
    pub(crate) extra: &'a [String],
    /// What it may cost. Only for agents that report what they cost.
    pub(crate) costs: CostBounds,
    /// The program's version, if it has said it.
    pub(crate) version: Option<&'a str>,
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

    /// One argument for each value, which cannot be read as another option.
    pub(super) fn each(mut self, option: &str, values: &[String]) -> Self {
        self.args.extend(values.iter().map(|value| format!("{option}{value}")));
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.insert(name, value);
        self
    }
}
