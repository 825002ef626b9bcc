//! The agents that need no configuration, as data.
//!
//! Ids, arguments and variables are those of `<id>/agent.json` in the ACP registry (github.com/agentclientprotocol/registry, read up to
//! October 2026). The lines that install are from the pages of the makers. Answers to `--version` were seen, or stand in published logs.

use crate::drivers::Kind;

/// An agent that may be on a machine.
#[derive(Debug)]
pub struct Agent {
    /// What people type, and the provider on the wire.
    pub name: &'static str,
    pub program: &'static str,
    /// Its id in the ACP registry, for people who read there.
    pub registry: Option<&'static str>,
    /// Its driver, and the arguments before those that the driver adds. `None`: it is not started, and the note says why.
    pub starts: Option<(Kind, &'static [&'static str])>,
    /// Variables that it needs. We update no agent, and neither does a session.
    pub env: &'static [(&'static str, &'static str)],
    /// What may stand before the version in its line of `--version`. Another text is of another program with this name. `None`: not known.
    pub version: Option<&'static [&'static str]>,
    /// `None`: how to find out, without a network and without a browser, is not known.
    pub sign_in: Option<SignIn>,
    /// What a person types to install it. It is shown and never run.
    pub install: &'static str,
    /// What its maker allows, or why it is not started.
    pub note: Option<&'static str>,
}

/// The sign-in of an agent.
#[derive(Debug)]
pub struct SignIn {
    /// The arguments with which the program says whether it is signed in.
    pub asks: &'static [&'static str],
    /// What a person types to sign in.
    pub how: &'static str,
}

/// One that speaks ACP with these arguments.
const fn acp(name: &'static str, args: &'static [&'static str], install: &'static str) -> Agent {
    let starts = Some((Kind::Acp, args));
    Agent { name, program: name, registry: None, starts, env: &[], version: None, sign_in: None, install, note: None }
}

pub static ALL: [Agent; 16] = [
    Agent {
        registry: Some("claude-acp"),
        starts: Some((Kind::Claude, &[])),
        version: Some(&[""]),
        sign_in: Some(SignIn { asks: &["auth", "status"], how: "claude auth login" }),
        ..acp("claude", &[], "npm install -g @anthropic-ai/claude-code")
    },
    Agent {
        registry: Some("codex-acp"),
        starts: Some((Kind::Codex, &[])),
        version: Some(&["codex-cli"]),
        sign_in: Some(SignIn { asks: &["login", "status"], how: "codex login" }),
        ..acp("codex", &[], "npm install -g @openai/codex")
    },
    Agent {
        registry: Some("gemini"),
        starts: Some((Kind::Gemini, &[])),
        version: Some(&[""]),
        // Every command but `--version` needs a sign-in.
        sign_in: Some(SignIn { asks: &["--list-extensions"], how: "gemini" }),
        note: Some(
            "since 18 June 2026 it serves API keys, Vertex AI and licences of Code Assist, and no personal accounts",
        ),
        ..acp("gemini", &[], "npm install -g @google/gemini-cli")
    },
    Agent {
        registry: Some("opencode"),
        starts: Some((Kind::Opencode, &["acp"])),
        version: Some(&[""]),
        ..acp("opencode", &[], "npm install -g opencode-ai")
    },
    Agent {
        registry: Some("goose"),
        starts: None,
        note: Some("what its modes (auto, approve, smart_approve, chat) allow is not known to Ensemble yet"),
        // A tool for migrations of databases has the same name, and says "goose version: v3.24.1".
        version: Some(&["", "goose"]),
        ..acp(
            "goose",
            &["acp"],
            "curl -fsSL https://github.com/aaif-goose/goose/releases/download/stable/download_cli.sh | bash",
        )
    },
    Agent {
        registry: Some("github-copilot-cli"),
        version: Some(&["GitHub Copilot CLI", ""]),
        ..acp("copilot", &["--acp"], "npm install -g @github/copilot")
    },
    Agent {
        registry: Some("cursor"),
        starts: None,
        note: Some("what its modes (agent, plan, ask) allow is not known to Ensemble yet"),
        version: Some(&[""]),
        ..acp("cursor-agent", &["acp"], "curl https://cursor.com/install -fsS | bash")
    },
    Agent { registry: Some("qwen-code"), ..acp("qwen", &["--acp"], "npm install -g @qwen-code/qwen-code") },
    Agent {
        registry: Some("kimi"),
        version: Some(&["kimi, version", ""]),
        ..acp("kimi", &["acp"], "curl -LsSf https://code.kimi.com/install.sh | bash")
    },
    Agent {
        registry: Some("qoder"),
        program: "qodercli",
        ..acp("qoder", &["--acp"], "curl -fsSL https://qoder.com/install | bash")
    },
    Agent { registry: Some("mistral-vibe"), program: "vibe-acp", ..acp("vibe", &[], "uv tool install mistral-vibe") },
    Agent {
        registry: Some("auggie"),
        env: &[("AUGMENT_DISABLE_AUTO_UPDATE", "1")],
        ..acp("auggie", &["--acp"], "npm install -g @augmentcode/auggie")
    },
    Agent {
        registry: Some("factory-droid"),
        env: &[("DROID_DISABLE_AUTO_UPDATE", "true"), ("FACTORY_DROID_AUTO_UPDATE_ENABLED", "false")],
        ..acp("droid", &["exec", "--output-format", "acp-daemon"], "curl -fsSL https://app.factory.ai/cli | sh")
    },
    Agent {
        starts: None,
        // github.com/charmbracelet/crush, pull requests 2450 and 3295.
        note: Some("no release of it speaks the Agent Client Protocol yet"),
        ..acp("crush", &[], "npm install -g @charmland/crush")
    },
    Agent {
        registry: Some("amp-acp"),
        starts: None,
        note: Some(
            "it speaks the Agent Client Protocol only through `amp-acp`, by another author. With that one installed: \
             `agents: {amp: {command: [amp-acp]}}` in runner.yaml",
        ),
        ..acp("amp", &[], "curl -fsSL https://ampcode.com/install.sh | bash")
    },
    Agent {
        registry: Some("antigravity-acp"),
        starts: None,
        // antigravity.google/docs/faq. Its server of the registry is another program, which signs in with an account of Google by default.
        note: Some(
            "its terms allow other programs an API key and no sign-in with Antigravity, and it speaks no Agent Client Protocol. \
             `gemini` works with an API key",
        ),
        ..acp("agy", &[], "curl -fsSL https://antigravity.google/cli/install.sh | bash")
    },
];

/// The agent with this name.
pub fn named(name: &str) -> Option<&'static Agent> {
    ALL.iter().find(|agent| agent.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ensemble_types::runs::Provider;

    use super::*;

    #[test]
    fn each_agent_has_a_name_for_the_wire_and_can_be_started_or_says_why_not() {
        for agent in &ALL {
            assert!(agent.name.parse::<Provider>().is_ok() && agent.name != Provider::DEMO, "{agent:?}");
            assert!(agent.starts.is_some() || agent.note.is_some(), "{agent:?}");
            assert!(!agent.program.contains('/') && !agent.install.is_empty(), "{agent:?}");
        }
        let names: BTreeSet<_> = ALL.iter().map(|agent| agent.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(Provider::ALL.iter().all(|provider| named(provider.as_str()).is_some_and(|one| one.starts.is_some())));
    }
}
