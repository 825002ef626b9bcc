//! How each agent's program is started.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_protocol::transcript::words::Mode;

use crate::command::{Refused, Start};
use crate::drivers::{Kind, acp, claude, codex};

/// The arguments after the program's name, and variables in addition to the inherited ones. Never passed through a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Files that are written before, by their paths, so that only this user can read them.
    pub files: BTreeMap<String, String>,
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

    /// One argument for each value, which cannot be read as another option.
    pub(crate) fn each(mut self, option: &str, values: &[String]) -> Self {
        self.args.extend(values.iter().map(|value| format!("{option}{value}")));
        self
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
    if start.is_fork() && !forks(kind) {
        return Err(Refused::Unsupported("this agent copies no conversation"));
    }
    Ok(match kind {
        Kind::Claude => claude::launch(start),
        Kind::Codex => codex::launch(start),
        Kind::Gemini | Kind::Opencode | Kind::Acp => acp::launch(kind, start),
    })
}

/// Whether the agent takes patterns of tools that it may use without asking.
pub fn takes_tools(kind: Kind) -> bool {
    matches!(kind, Kind::Claude | Kind::Gemini)
}

/// Whether the agent can continue a copy of a conversation.
pub fn forks(kind: Kind) -> bool {
    matches!(kind, Kind::Claude | Kind::Codex)
}

/// How to start the agent to ask it for its conversations: see [`crate::threads`]. `None`: it is not asked.
pub fn look(kind: Kind) -> Option<Launch> {
    (kind == Kind::Codex).then(codex::threads::look)
}

/// How to start the agent as a server for many sessions: each of them connects to this Unix socket by WebSocket (RFC 6455) and exchanges
/// one text message for each line. The turns of a session continue while no client is connected. `None`: the agent has no such server.
pub fn serve(kind: Kind, socket: &Path) -> Option<Launch> {
    match kind {
        Kind::Codex => Some(codex::serve(socket)),
        // Sessions of ACP share one standard input, so one that hangs would hold up the others, and none outlives its host.
        Kind::Claude | Kind::Gemini | Kind::Opencode | Kind::Acp => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{ApiKey, Attended, Unattended};

    fn start(mode: Mode) -> Start {
        let (session_id, directory) = ("s-1".to_owned(), "/w".to_owned());
        let (model, resume, checkpoint, mcp_servers) = Default::default();
        let private = Some("/p".to_owned());
        let cost_before = 0.0;
        Start {
            directory,
            session_id,
            mode,
            model,
            resume,
            fork: false,
            cost_before,
            as_root: true,
            checkpoint,
            mcp_servers,
            private,
            attended: Attended::People,
        }
    }

    fn unattended(mode: Mode, unattended: Unattended) -> Start {
        Start { attended: Attended::Unattended(Box::new(unattended)), private: None, ..start(mode) }
    }

    #[test]
    fn each_agent_is_started_in_its_own_way() {
        let args = |kind, start: &Start| launch(kind, start).unwrap().args.join(" ");
        let shared = "-p --input-format stream-json --output-format stream-json --verbose --include-partial-messages \
                      --replay-user-messages --permission-prompt-tool stdio --permission-mode";
        let plan = r#"--settings {"useAutoModeDuringPlan":false}"#;
        assert_eq!(args(Kind::Claude, &start(Mode::Ask)), format!("{shared} default {plan} --session-id s-1"));
        let resumed = Start { resume: Some("s-0".to_owned()), model: Some("m".to_owned()), ..start(Mode::Plan) };
        assert_eq!(args(Kind::Claude, &resumed), format!("{shared} plan {plan} --resume s-0 --model m"));
        let copied = Start { fork: true, ..resumed.clone() };
        assert_eq!(args(Kind::Claude, &copied), format!("{shared} plan {plan} --resume s-0 --fork-session --model m"));
        assert_eq!(launch(Kind::Gemini, &copied), Err(Refused::Unsupported("this agent copies no conversation")));
        assert_eq!(
            args(Kind::Codex, &resumed),
            "app-server --disable plugins -c check_for_update_on_startup=false",
            "conversation, model and mode go over its wire"
        );
        assert_eq!(args(Kind::Gemini, &resumed), "--acp --model m");
        for kind in [Kind::Opencode, Kind::Acp] {
            assert_eq!(args(kind, &resumed), "", "the table and the configuration have the command");
        }
    }

    #[test]
    fn what_no_person_watches_is_started_so_that_it_asks_none() {
        let args = |kind, mode| launch(kind, &unattended(mode, Unattended::default())).unwrap().args.join(" ");
        for (mode, word) in [
            (Mode::Plan, "plan"),
            (Mode::Ask, "default"),
            (Mode::Edit, "acceptEdits"),
            (Mode::Bypass, "bypassPermissions"),
        ] {
            let args = args(Kind::Claude, mode);
            assert!(
                args.contains(&format!("--permission-mode {word} ")) && !args.contains("permission-prompt"),
                "{args}"
            );
        }
        assert!(args(Kind::Codex, Mode::Edit).starts_with("app-server "));
        // What each of these asks is refused by the host.
        assert_eq!((args(Kind::Gemini, Mode::Edit), args(Kind::Opencode, Mode::Edit)), ("--acp".into(), String::new()));
        let gemini = launch(Kind::Gemini, &unattended(Mode::Edit, Unattended::default())).unwrap();
        assert_eq!(gemini.env["GEMINI_CLI_TRUST_WORKSPACE"], "true");
        assert!(!launch(Kind::Gemini, &start(Mode::Edit)).unwrap().env.contains_key("GEMINI_CLI_TRUST_WORKSPACE"));
    }

    #[test]
    fn a_pattern_of_a_tool_is_never_an_option_of_its_own() {
        let tools = vec!["Bash(npm test:*)".to_owned(), "--dangerously-skip-permissions".to_owned()];
        let with_tools = unattended(Mode::Edit, Unattended { tools: tools.clone(), ..Unattended::default() });
        for (kind, option) in [(Kind::Claude, "--allowedTools="), (Kind::Gemini, "--allowed-tools=")] {
            let args = launch(kind, &with_tools).unwrap().args;
            let is_safe = |tool: &String| args.contains(&format!("{option}{tool}")) && !args.contains(tool);
            assert!(takes_tools(kind) && tools.iter().all(is_safe), "{args:?}");
        }
        for kind in [Kind::Codex, Kind::Opencode, Kind::Acp] {
            assert!(!takes_tools(kind) && !launch(kind, &with_tools).unwrap().args.join(" ").contains("Bash"));
        }
    }

    #[test]
    fn a_resumed_conversation_may_cost_as_much_as_a_new_one() {
        let args = |version: Option<&str>, resume: Option<&str>| {
            let (max_cost_usd, version) = (Some(2.0), version.map(str::to_owned));
            let start = unattended(Mode::Edit, Unattended { max_cost_usd, version, ..Unattended::default() });
            let start = Start { resume: resume.map(str::to_owned), cost_before: 0.5, ..start };
            launch(Kind::Claude, &start).unwrap().args.join(" ")
        };
        // The counter of newer versions begins with what the conversation has cost.
        assert!(args(Some("2.1.277"), Some("s")).ends_with("--max-budget-usd 2.5"));
        for (version, resume) in [(Some("2.1.276"), Some("s")), (None, Some("s")), (Some("2.1.277"), None)] {
            assert!(args(version, resume).ends_with("--max-budget-usd 2"), "{version:?}");
        }
    }

    #[test]
    fn a_key_that_codex_is_to_sign_in_with_is_in_no_argument_and_on_no_disk() {
        let api_key = Some(ApiKey("hush".to_owned()));
        let start = unattended(Mode::Edit, Unattended { api_key, ..Unattended::default() });
        let launched = format!("{:?} {start:?}", launch(Kind::Codex, &start).unwrap());
        assert!(
            launched.contains(r#"cli_auth_credentials_store=\"ephemeral\""#) && !launched.contains("hush"),
            "{launched}"
        );
    }

    #[test]
    fn what_an_editor_has_for_claude_stands_in_a_file_and_not_in_its_arguments() {
        let hush = serde_json::json!([{"name": "n", "command": "c", "env": [{"name": "KEY", "value": "hush"}]}]);
        let mcp_servers = crate::McpServer::read_all(Some(&hush)).unwrap();
        let launched = launch(Kind::Claude, &Start { mcp_servers, ..start(Mode::Ask) }).unwrap();
        assert!(launched.args.join(" ").contains("--mcp-config /p/mcp.json -p"), "{launched:?}");
        assert!(
            !launched.args.join(" ").contains("hush") && !launched.env.values().any(|value| value.contains("hush"))
        );
        assert!(launched.files["/p/mcp.json"].contains("hush"));
    }

    #[test]
    fn only_root_says_that_it_is_sandboxed_and_only_when_it_bypasses() {
        let is_confirmed = |mode, as_root| {
            launch(Kind::Claude, &Start { as_root, ..start(mode) }).unwrap().env.contains_key("IS_SANDBOX")
        };
        assert!(is_confirmed(Mode::Bypass, true));
        assert!(!is_confirmed(Mode::Bypass, false) && !is_confirmed(Mode::Edit, true));
    }

    #[test]
    fn nothing_is_started_in_a_mode_of_the_agents_own_or_with_a_hidden_option() {
        for kind in [Kind::Claude, Kind::Codex, Kind::Gemini, Kind::Opencode, Kind::Acp] {
            assert!(launch(kind, &start(Mode::of("auto"))).is_err());
            let option = Some("--dangerously-skip-permissions".to_owned());
            assert!(launch(kind, &Start { model: option.clone(), ..start(Mode::Ask) }).is_err());
            assert!(launch(kind, &Start { resume: option, ..start(Mode::Ask) }).is_err());
        }
    }
}
