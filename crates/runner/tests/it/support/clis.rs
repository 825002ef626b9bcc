//! The real coding agents, connected to the stand-in for their model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_doubles::model::{StandIn, claude_has_sessions, opencode_has_its_packages};
use ensemble_runner::config::ProviderConfig;
use ensemble_runner::{AgentConfig, Config};
use ensemble_testkit::eventually;
use ensemble_types::leases::Lease;
use ensemble_types::runs::Permission;
use ensemble_types::runs::Provider;
use serde_json::json;
use tempfile::TempDir;

use super::orchestrator::task;
use super::{Orchestrator, Runner, ScriptAgent, config};

/// With this variable Gemini does not start itself a second time.
const NO_RELAUNCH: &str = "GEMINI_CLI_NO_RELAUNCH";

/// A runner with one real agent, its server and its model.
pub(crate) struct Fixture {
    pub(crate) provider: Provider,
    pub(crate) server: Orchestrator,
    pub(crate) model: StandIn,
    pub(crate) home: TempDir,
    pub(crate) config: Config,
    _runner: Runner,
}

impl Fixture {
    pub(crate) fn new(provider: Provider) -> Self {
        Self::with(provider, Permission::Bypass)
    }

    /// As on people's machines, where Gemini starts itself a second time. It takes as long as all else that Gemini does in a test,
    /// so only tests of processes do it.
    pub(crate) fn with_relaunch(provider: Provider) -> Self {
        Self::configured(provider, Permission::Bypass, |config| {
            config.env.remove(NO_RELAUNCH);
        })
    }

    pub(crate) fn with(provider: Provider, permission: Permission) -> Self {
        Self::configured(provider, permission, |_| {})
    }

    /// With changes to what the agent is called with.
    pub(crate) fn configured(
        provider: Provider,
        permission: Permission,
        change: impl FnOnce(&mut ProviderConfig),
    ) -> Self {
        let (server, model) = (Orchestrator::start(), StandIn::start().unwrap());
        // The sandbox of codex has its own `/dev`, where the folder for temporary files of the tests can be, and codex makes no
        // programs for it in such a folder.
        let home = match provider {
            Provider::Codex => tempfile::tempdir_in("/var/tmp").unwrap(),
            _ => tempfile::tempdir().unwrap(),
        };
        // The script agent is only a placeholder and is replaced.
        let mut config = config(&server, &ScriptAgent::new(), home.path());
        config.environment.insert("PATH".to_owned(), search_path());
        config.providers.values_mut().for_each(|provider| provider.enabled = false);
        match provider {
            Provider::Other(_) => set_up_opencode(&mut config, permission, &model.url(), home.path()),
            _ => {
                set_up(&mut config, provider, permission, &model.url(), home.path());
                change(config.providers.get_mut(&provider).unwrap());
            }
        }
        config.timing.term_grace = Duration::from_secs(3);
        let runner = Runner::start(config.clone());
        Self { provider, server, model, home, config, _runner: runner }
    }

    /// A task for this agent.
    pub(crate) fn task(&self, prompt: &str) -> Lease {
        // The default model of each program causes additional calls.
        let model = match self.provider {
            Provider::Claude => "claude-sonnet-4-5",
            Provider::Codex => "gpt-5",
            Provider::Gemini => "gemini-2.5-flash",
            Provider::Other(_) => "stub/stub-model",
        };
        Lease { provider: self.provider, model: Some(model.to_owned()), ..task(prompt) }
    }

    pub(crate) fn was_asked(&self, text: &str) -> bool {
        self.model.requests().iter().any(|recorded| recorded.user_messages.iter().any(|said| said.contains(text)))
    }

    /// Waits until the model received a prompt with this text.
    pub(crate) async fn wait_for_question(&self, text: &str) {
        eventually(super::SOON, async || self.was_asked(text)).await;
    }
}

fn set_up(config: &mut Config, provider: Provider, permission: Permission, model_url: &str, home: &Path) {
    let mut entry = ProviderConfig { program: program(provider.as_str()), permission, ..ProviderConfig::of(provider) };
    let mut set = |name: &str, value: &str| entry.env.insert(name.to_owned(), value.to_owned());
    set("HOME", home.to_str().unwrap());
    match provider {
        Provider::Claude => {
            claude_has_sessions(home).unwrap();
            set("ANTHROPIC_BASE_URL", model_url);
            set("ANTHROPIC_API_KEY", "stand-in");
            set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
            set("DISABLE_TELEMETRY", "1");
        }
        Provider::Codex => {
            set("OPENAI_API_KEY", "stand-in");
            let provider = format!(
                "model_providers.standin={{name=\"standin\",base_url=\"{model_url}/v1\",env_key=\"OPENAI_API_KEY\",\
                 wire_api=\"responses\",stream_max_retries=0,request_max_retries=0}}"
            );
            entry.args = ["-c", "model_provider=standin", "-c", &provider].map(str::to_owned).into();
        }
        Provider::Gemini | Provider::Other(_) => {
            set("GEMINI_API_KEY", "stand-in");
            set("GOOGLE_GEMINI_BASE_URL", model_url);
            set(NO_RELAUNCH, "true");
            let settings = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false},
                "privacy":{"usageStatisticsEnabled":false},"general":{"enableAutoUpdate":false}}"#;
            std::fs::create_dir(home.join(".gemini")).unwrap();
            std::fs::write(home.join(".gemini/settings.json"), settings).unwrap();
        }
    }
    config.providers.insert(provider, entry);
}

fn set_up_opencode(config: &mut Config, permission: Permission, model_url: &str, home: &Path) {
    opencode_has_its_packages(home).unwrap();
    let models = json!({"stub-model": {"name": "stub", "limit": {"context": 100_000, "output": 8_000}}});
    let options = json!({"baseURL": format!("{model_url}/v1"), "apiKey": "stand-in"});
    let provider = json!({"stub": {"npm": "@ai-sdk/anthropic", "options": options, "models": models}});
    let content = json!({"model": "stub/stub-model", "small_model": "stub/stub-model", "provider": provider});
    let program = program("opencode").to_str().unwrap().to_owned();
    let mut agent = AgentConfig::of(vec![program, "acp".to_owned()]);
    (agent.permission, agent.permission_limit) = (Some(permission), Some(permission));
    agent.env = [
        ("HOME", home.to_str().unwrap()),
        ("OPENCODE_CONFIG_CONTENT", &content.to_string()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    config.agents.insert("opencode".to_owned(), agent);
}

/// Two of the programs are scripts for `node`, which may be anywhere on the search path.
fn search_path() -> String {
    let inherited = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    inherited.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned())
}

fn program(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/provider-clis");
    let program = folder.join("node_modules/.bin").join(name);
    assert!(
        program.exists(),
        "\n\nThe real {name} program is not installed, and this test drives it.\n\
         Run `tests/provider-clis/install` (or `make test`, which does) and try again.\n\n"
    );
    program.canonicalize().unwrap()
}
