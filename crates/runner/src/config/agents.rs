//! The agents of a machine by their names, and what tasks may do with each.

use std::path::PathBuf;
use std::sync::LazyLock;

use ensemble_agent::Kind;
use ensemble_host::Known;
use ensemble_types::runs::Provider;

use super::{AgentConfig, Config, ProviderConfig};

/// An agent that needs no configuration, because its driver is made for it.
fn known(name: &str) -> Option<&'static AgentConfig> {
    static OPENCODE: LazyLock<AgentConfig> =
        LazyLock::new(|| AgentConfig::of(vec!["opencode".to_owned(), "acp".to_owned()]));
    (name == "opencode").then_some(&*OPENCODE)
}

impl Config {
    /// How the agent with this name is started.
    ///
    /// # Errors
    /// There is none. The text is for people.
    pub fn known(&self, name: &str) -> Result<Known, String> {
        self.agent(name).map(|(known, _)| known)
    }

    /// The agent with this name: a provider, or one that the configuration has under `agents`.
    ///
    /// # Errors
    /// There is none that a task can have. The text is for people.
    pub(crate) fn agent(&self, name: &str) -> Result<(Known, ProviderConfig), String> {
        if name == Provider::DEMO {
            return Err("demo is the script of `ensemble demo`, which does nothing else. Give the agent another name"
                .to_owned());
        }
        let programs = self.programs();
        if let Some(command) = programs.agents.get(name).or_else(|| known(name)) {
            let (program, args) =
                command.command.split_first().ok_or_else(|| format!("agents.{name} has no command"))?;
            let mut settings = ProviderConfig::of(Provider::Claude);
            settings.pass_env = command.pass_env.clone();
            settings.env = command.env.clone();
            settings.permission = command.permission.unwrap_or(settings.permission);
            settings.permission_limit =
                command.permission_limit.unwrap_or(settings.permission_limit).max(settings.permission);
            let (kind, args) = match (name, args) {
                // Its driver adds the argument itself.
                ("opencode", [acp, rest @ ..]) if acp == "acp" => (Kind::Opencode, rest),
                (_, args) => (Kind::Acp, args),
            };
            let (program, args) = (program.into(), args.to_vec());
            return Ok((settings.agent(kind, program, (args, Vec::new())), settings));
        }
        let kind = match name {
            "claude" => Kind::Claude,
            "codex" => Kind::Codex,
            "gemini" => Kind::Gemini,
            _ => {
                return Err(format!(
                    "the agent {name} is not in the configuration. Add it to runner.yaml: agents.{name}.command: [{name}, acp]"
                ));
            }
        };
        let provider = Provider::ALL.into_iter().find(|provider| provider.as_str() == name);
        let settings = provider.and_then(|provider| programs.providers.get(&provider)).cloned();
        let settings = settings.filter(|settings| settings.enabled);
        let settings = settings.ok_or_else(|| format!("the agent {name} is switched off in the configuration"))?;
        let (program, last_args) = (settings.program.clone(), settings.args.clone());
        Ok((settings.agent(kind, program, (Vec::new(), last_args)), settings))
    }
}

impl ProviderConfig {
    /// An agent with these variables, and these first and last arguments.
    fn agent(&self, kind: Kind, program: PathBuf, (args, last_args): (Vec<String>, Vec<String>)) -> Known {
        Known { kind, program, args, last_args, env: self.env.clone(), pass_env: self.pass_env.clone() }
    }
}
