//! The programs that do the work: how each one is called, and how what it prints is read.
//!
//! All three are called the same way: arguments as a list and never through a shell, the prompt on standard input, one
//! JSON value per line on standard output. What differs is in one file per program.

mod claude;
mod codex;
mod gemini;
mod lines;
mod program;
mod transcript;
mod verdict;

use std::collections::BTreeMap;

use ensemble_types::runs::Provider;
use serde::{Deserialize, Serialize};

pub(crate) use lines::{Lines, Piece, whole_characters};
pub use program::{Offer, find};
pub(crate) use transcript::Transcript;
pub(crate) use verdict::{Exit, Outcome, Stop, judge};

/// How much a provider's program may do without asking. Nobody is there to be asked, so what needs asking is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// What the program allows by itself: reading, mostly.
    Ask,
    /// It may change files in its working directory.
    #[default]
    Edit,
    /// It may do all that this account may do. Each attempt that gets this is logged.
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
    /// `None`: the program's own choice.
    pub(crate) model: Option<&'a str>,
    /// The program's session to go on with.
    pub(crate) resume: Option<&'a str>,
    pub(crate) permission: Permission,
    /// Arguments from the configuration.
    pub(crate) extra: &'a [String],
    /// Whether the runner is root, which some programs want to be told is on purpose.
    pub(crate) as_root: bool,
}

/// The arguments of a call, and variables that the program needs beside those it inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<&'static str, &'static str>,
}

impl Invocation {
    fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    fn option(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.arg(name).arg(value),
            None => self,
        }
    }

    fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.insert(name, value);
        self
    }
}

pub(crate) fn invocation(provider: Provider, call: &Call<'_>) -> Invocation {
    match provider {
        Provider::Claude => claude::invocation(call),
        Provider::Codex => codex::invocation(call),
        Provider::Gemini => gemini::invocation(call),
    }
}

/// A model's name as the interface allows it. What would be read as an option, or would need quoting, is none.
pub(crate) fn is_model(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"._:/[]-".contains(&b);
    name.len() <= 128 && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(inside)
}

/// A session id as the programs make them. Anything else is not handed to one.
pub(crate) fn is_session(id: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    id.len() <= 128 && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && id.bytes().all(inside)
}

/// What the environment of each program may take over from the runner's. A name that ends in `*` is a prefix.
pub fn default_pass_env(provider: Provider) -> Vec<String> {
    const SHARED: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "LC_*",
        "TZ",
        "TERM",
        "TMPDIR",
        "XDG_*",
        "SSH_AUTH_SOCK",
        "GIT_*",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
    ];
    let own: &[&str] = match provider {
        Provider::Claude => &["ANTHROPIC_*", "CLAUDE_*"],
        Provider::Codex => &["OPENAI_*", "CODEX_*"],
        Provider::Gemini => &["GEMINI_*", "GOOGLE_*"],
    };
    SHARED.iter().chain(own).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>() -> Call<'a> {
        Call { model: Some("m-1"), resume: None, permission: Permission::Edit, extra: &[], as_root: false }
    }

    #[test]
    fn each_program_is_called_in_its_own_way() {
        let args = |provider, call: &Call<'_>| invocation(provider, call).args.join(" ");
        let fresh = call();
        let resumed = Call { model: None, resume: Some("s-1"), permission: Permission::Bypass, ..call() };
        assert_eq!(
            args(Provider::Claude, &fresh),
            "-p --output-format stream-json --verbose --permission-mode acceptEdits --model m-1"
        );
        assert_eq!(
            args(Provider::Claude, &resumed),
            "-p --output-format stream-json --verbose --permission-mode bypassPermissions --resume s-1"
        );
        assert_eq!(
            args(Provider::Codex, &fresh),
            "exec --json --skip-git-repo-check --sandbox workspace-write -m m-1 -"
        );
        assert_eq!(
            args(Provider::Codex, &resumed),
            "exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox resume s-1 -"
        );
        assert_eq!(args(Provider::Gemini, &fresh), "--output-format stream-json --approval-mode auto_edit -m m-1");
        assert_eq!(args(Provider::Gemini, &resumed), "--output-format stream-json --approval-mode yolo --resume s-1");
    }

    #[test]
    fn only_root_says_that_it_is_sandboxed_and_only_when_it_bypasses() {
        let env = |permission, as_root| invocation(Provider::Claude, &Call { permission, as_root, ..call() }).env;
        assert!(env(Permission::Bypass, true).contains_key("IS_SANDBOX"));
        assert!(!env(Permission::Bypass, false).contains_key("IS_SANDBOX"));
        assert!(!env(Permission::Edit, true).contains_key("IS_SANDBOX"));
    }

    #[test]
    fn names_that_look_like_options_are_refused() {
        for good in ["gpt-5", "claude-opus-4-8[1m]", "models/x:y", "a"] {
            assert!(is_model(good), "{good}");
        }
        for bad in ["", "-m", "--help", "a b", "a;b", "$(x)", "ä", "a\0", &"x".repeat(129)] {
            assert!(!is_model(bad), "{bad}");
            assert!(!is_session(bad), "{bad}");
        }
    }
}
