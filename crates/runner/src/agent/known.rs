//! Which agents a machine has, and how each is started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use ensemble_agent::Kind;
use ensemble_types::runs::Provider;

use crate::config::{AgentConfig, Config, Environment, ProviderConfig};

/// An agent of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    /// Before the arguments that the driver needs, and after them.
    pub(crate) args: Vec<String>,
    pub(crate) last_args: Vec<String>,
    pub(crate) settings: ProviderConfig,
}

/// An agent that needs no configuration, because its driver is made for it.
fn known(name: &str) -> Option<&'static AgentConfig> {
    static OPENCODE: LazyLock<AgentConfig> =
        LazyLock::new(|| AgentConfig::of(vec!["opencode".to_owned(), "acp".to_owned()]));
    (name == "opencode").then_some(&*OPENCODE)
}

impl Known {
    /// The agent with this name: a provider, or one that the configuration has under `agents`.
    pub(crate) fn named(config: &Config, name: &str) -> Result<Self, String> {
        let programs = config.programs();
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
            return Ok(Self { kind, program: program.into(), args: args.to_vec(), last_args: Vec::new(), settings });
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
        Ok(Self { kind, program, args: Vec::new(), last_args, settings })
    }

    /// An agent that cannot be started.
    pub(crate) fn without_program(kind: Kind) -> Self {
        let settings = ProviderConfig::of(Provider::Claude);
        Self { kind, program: PathBuf::from("/nonexistent"), args: Vec::new(), last_args: Vec::new(), settings }
    }

    /// The variables of its process, with what it may inherit from this environment. What its driver needs counts more than that, and
    /// what the configuration sets counts most.
    pub(crate) fn env(&self, environment: &Environment, launch: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = Config::program_env_of(&self.settings, environment);
        env.extend(launch.clone());
        env.extend(self.settings.env.clone());
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_counts_more_than_the_driver_and_that_more_than_what_is_inherited() {
        let variables = |value: &str| ["A", "B", "C"].map(|name| (name.to_owned(), value.to_owned()));
        let mut known = Known::without_program(Kind::Claude);
        known.settings.pass_env = vec!["*".to_owned()];
        known.settings.env = variables("configured").into_iter().take(1).collect();
        let launch = variables("launched").into_iter().take(2).collect();
        let env = known.env(&variables("inherited").into(), &launch);
        assert_eq!(["A", "B", "C"].map(|name| env[name].as_str()), ["configured", "launched", "inherited"]);
    }
}
