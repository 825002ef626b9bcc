//! The coding agents: how each program is called, and how its output is read.
//!
//! All three are called in the same way: arguments as a list and never through a shell, the prompt on standard input,
//! one JSON value per line on standard output. What differs is in one file per program.

mod agent;
mod claude;
mod codex;
mod costs;
mod excerpt;
mod gemini;
mod json;
mod lines;
mod names;
mod offer;
mod sign_in;
mod transcript;
mod verdict;
mod ways;

use ensemble_types::runs::Provider;

use agent::Agent;
pub(crate) use agent::{Call, Invocation};
pub(crate) use costs::CostBounds;
pub(crate) use lines::{Lines, Piece, whole_characters};
pub(crate) use names::{is_model, is_session};
pub use offer::{NotOffered, Offer};
pub(crate) use sign_in::{SignIn, State, Version, ask, changed_at};
pub(crate) use transcript::Transcript;
use transcript::{Ended, Refusal};
pub(crate) use verdict::{Outcome, Stop, judge};
pub use ways::Missing;
pub(crate) use ways::missing;

/// `None`: no driver is made for it. The runner offers no such provider, and refuses its tasks before any of this is asked.
fn agent(provider: Provider) -> Option<&'static dyn Agent> {
    match provider {
        Provider::Claude => Some(&claude::Claude),
        Provider::Codex => Some(&codex::Codex),
        Provider::Gemini => Some(&gemini::Gemini),
        Provider::Other(_) => None,
    }
}

/// The command that installs a provider's program, from the pages of its maker.
pub fn install(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Claude => Some("npm install -g @anthropic-ai/claude-code"),
        Provider::Codex => Some("npm install -g @openai/codex"),
        Provider::Gemini => Some("npm install -g @google/gemini-cli"),
        Provider::Other(_) => None,
    }
}

pub(crate) fn invocation(provider: Provider, call: &Call<'_>) -> Invocation {
    agent(provider).map(|agent| agent.invocation(call)).unwrap_or_default()
}

/// Whether the provider's program takes patterns of tools that it may use without asking.
pub(crate) fn takes_tools(provider: Provider) -> bool {
    agent(provider).is_some_and(Agent::takes_tools)
}

/// Reads one line of a program's output. Lines that are not JSON are shown unchanged.
pub(crate) fn read_line(provider: Provider, line: &str, transcript: &mut Transcript) {
    let event = line.trim_start().starts_with('{').then(|| serde_json::from_str(line).ok()).flatten();
    match event.zip(agent(provider)) {
        Some((event, agent)) => agent.read(&event, transcript),
        None if line.trim().is_empty() => {}
        None => transcript.note(line),
    }
}

/// Whether the program reports that the session to resume does not exist.
pub(crate) fn lost_session(provider: Provider, transcript: &Transcript, stderr: &str) -> bool {
    match transcript.ended() {
        Some(Ended::Failure { refusal, .. }) => *refusal == Refusal::Session,
        Some(Ended::Success) => false,
        None => agent(provider).is_some_and(|agent| agent.lost_session(stderr)),
    }
}

/// Whether the program's exit code says that a limit of use is reached.
fn exits_at_limit(provider: Provider, code: i32) -> bool {
    agent(provider).is_some_and(|agent| agent.exits_at_limit(code))
}

/// The default list of variables that each program inherits from the runner. A name that ends in `*` is a prefix.
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
    let own = agent(provider).map_or(&[][..], Agent::inherits);
    SHARED.iter().chain(own).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use ensemble_types::runs::Permission;

    use super::*;

    fn call<'a>() -> Call<'a> {
        Call {
            model: Some("m-1"),
            resume: None,
            permission: Permission::Edit,
            allowed_tools: &[],
            extra: &[],
            costs: CostBounds::default(),
            version: None,
            as_root: false,
        }
    }

    #[test]
    fn each_program_is_called_in_its_own_way() {
        let args = |provider, call: &Call<'_>| invocation(provider, call).args.join(" ");
        let fresh = call();
        let resumed = Call { model: None, resume: Some("s-1"), permission: Permission::Bypass, ..call() };
        assert_eq!(
            args(Provider::Claude, &fresh),
            "-p --output-format stream-json --verbose --include-partial-messages --permission-mode acceptEdits --model m-1"
        );
        assert_eq!(
            args(Provider::Claude, &resumed),
            "-p --output-format stream-json --verbose --include-partial-messages --permission-mode bypassPermissions --resume s-1"
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
    fn a_pattern_of_a_tool_is_never_an_option_of_its_own() {
        let tools = ["Bash(npm test:*)".to_owned(), "--dangerously-skip-permissions".to_owned()];
        for (provider, option) in [(Provider::Claude, "--allowedTools="), (Provider::Gemini, "--allowed-tools=")] {
            let args = invocation(provider, &Call { allowed_tools: &tools, ..call() }).args;
            assert!(
                tools.iter().all(|tool| args.contains(&format!("{option}{tool}")) && !args.contains(tool)),
                "{args:?}"
            );
            assert!(takes_tools(provider));
        }
        assert!(!takes_tools(Provider::Codex));
    }

    #[test]
    fn each_permission_has_its_word() {
        let args = |provider, permission| invocation(provider, &Call { permission, ..call() }).args.join(" ");
        assert!(args(Provider::Claude, Permission::Plan).contains("--permission-mode plan"));
        assert!(args(Provider::Codex, Permission::Plan).contains("--sandbox read-only"));
        assert!(args(Provider::Gemini, Permission::Plan).contains("--approval-mode plan"));
    }

    #[test]
    fn a_resumed_session_may_cost_as_much_as_a_new_one() {
        let costs = CostBounds { max: Some(2.0), before: 0.5 };
        let args = |version| invocation(Provider::Claude, &Call { costs, version, ..call() }).args.join(" ");
        // The counter of newer versions begins with what the session has cost.
        assert!(args(Some("2.1.277")).contains("--max-budget-usd 2.5"));
        assert!(args(Some("2.1.276")).ends_with("--max-budget-usd 2"));
        assert!(args(None).ends_with("--max-budget-usd 2"));
    }

    #[test]
    fn only_root_says_that_it_is_sandboxed_and_only_when_it_bypasses() {
        let env = |permission, as_root| invocation(Provider::Claude, &Call { permission, as_root, ..call() }).env;
        assert!(env(Permission::Bypass, true).contains_key("IS_SANDBOX"));
        assert!(!env(Permission::Bypass, false).contains_key("IS_SANDBOX"));
        assert!(!env(Permission::Edit, true).contains_key("IS_SANDBOX"));
    }
}
