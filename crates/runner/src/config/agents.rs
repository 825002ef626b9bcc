//! The agents of a machine by their names, and what tasks may do with each.

use std::path::PathBuf;

use ensemble_agent::{Kind, known};
use ensemble_host::Known;
use ensemble_types::runs::Provider;

use super::{AgentConfig, Config, ProviderConfig};

impl Config {
    /// How the agent with this name is started.
    ///
    /// # Errors
    /// There is none. The text is for people.
    pub fn known(&self, name: &str) -> Result<Known, String> {
        self.agent(name).map(|(known, _)| known)
    }

    /// The agent with this name: a provider, one that the configuration has under `agents`, or one that needs no configuration.
    ///
    /// # Errors
    /// There is none that a task can have. The text is for people.
    pub(crate) fn agent(&self, name: &str) -> Result<(Known, ProviderConfig), String> {
        if name == Provider::DEMO {
            return Err("demo is the script of `ensemble demo`, which does nothing else. Give the agent another name"
                .to_owned());
        }
        let programs = self.programs();
        let known = known::named(name);
        let starts = known.and_then(|known| known.starts);
        let provider = Provider::ALL.into_iter().find(|provider| provider.as_str() == name);
        if let (Some(provider), Some((kind, _))) = (provider, starts) {
            let settings = programs.providers.get(&provider).filter(|settings| settings.enabled).cloned();
            let settings = settings.ok_or_else(|| format!("the agent {name} is switched off in the configuration"))?;
            let (program, last_args) = (settings.program.clone(), settings.args.clone());
            return Ok((settings.agent(kind, program, (Vec::new(), last_args)), settings));
        }
        let usual = AgentConfig::of(Vec::new());
        let own = programs.agents.get(name).unwrap_or(&usual);
        let (program, args) = match (own.command.split_first(), known, starts) {
            (Some((program, args)), ..) => (program.clone(), args.to_vec()),
            (None, Some(known), Some((_, args))) => {
                (known.program.to_owned(), args.iter().map(|arg| (*arg).to_owned()).collect())
            }
            (None, Some(known), None) => {
                return Err(format!("{name} is not started: {}", known.note.unwrap_or_default()));
            }
            (None, None, _) => {
                return Err(format!(
                    "there is no agent {name} on this computer. runner.yaml can add it: agents.{name}.command: [{name}, acp]"
                ));
            }
        };
        let mut settings = ProviderConfig::of(Provider::Claude);
        settings.pass_env = own.pass_env.clone();
        settings.env = known
            .into_iter()
            .flat_map(|known| known.env)
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        settings.env.extend(own.env.clone());
        settings.permission = own.permission.unwrap_or(settings.permission);
        settings.permission_limit = own.permission_limit.unwrap_or(settings.permission_limit).max(settings.permission);
        // With other arguments it may speak in another way.
        let kind = starts
            .filter(|(_, usual)| usual.len() <= args.len() && usual.iter().zip(&args).all(|(usual, arg)| usual == arg));
        let kind = kind.map_or(Kind::Acp, |(kind, _)| kind);
        Ok((settings.agent(kind, program.into(), (args, Vec::new())), settings))
    }
}

impl ProviderConfig {
    /// An agent with these variables, and these first and last arguments.
    fn agent(&self, kind: Kind, program: PathBuf, (args, last_args): (Vec<String>, Vec<String>)) -> Known {
        Known { kind, program, args, last_args, env: self.env.clone(), pass_env: self.pass_env.clone() }
    }
}
