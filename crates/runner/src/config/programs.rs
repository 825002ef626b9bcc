//! The part of the configuration that is read again when its file changes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ensemble_types::runs::Provider;

use super::{AgentConfig, Config, Environment, ProviderConfig};

/// The programs of a machine, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Programs {
    pub(crate) providers: BTreeMap<Provider, ProviderConfig>,
    pub(crate) agents: BTreeMap<String, AgentConfig>,
}

/// A configuration file, and what was read from it last. Cheap to clone.
#[derive(Clone)]
pub(super) struct Watched(Arc<(PathBuf, Environment, Mutex<Known>)>);

struct Known {
    stamp: Stamp,
    programs: Arc<Programs>,
}

/// What shows that a file was replaced. `None`: the file does not exist.
type Stamp = Option<(SystemTime, u64)>;

impl Watched {
    pub(super) fn new(path: PathBuf, environment: Environment, programs: Programs) -> Self {
        let known = Known { stamp: stamp(&path), programs: Arc::new(programs) };
        Self(Arc::new((path, environment, Mutex::new(known))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.0
    }

    fn programs(&self) -> Arc<Programs> {
        let (path, environment, known) = &*self.0;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(path);
        if known.stamp != stamp {
            known.stamp = stamp;
            match Config::read(stamp.map(|_| &**path), environment) {
                Ok(Config { providers, agents, .. }) => {
                    known.programs = Arc::new(Programs { providers, agents });
                    tracing::info!(path = %path.display(), "The configuration has changed. Its providers and agents count from now on, and \
                                                            its other settings when the runner is started again");
                }
                Err(errors) => {
                    tracing::warn!(path = %path.display(), "The configuration has changed and is not used, because {errors}");
                }
            }
        }
        known.programs.clone()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.0.0).finish()
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

impl Config {
    /// Reads `providers` and `agents` again whenever this file changes, is made or is removed. [`Config::read`] does this with the file that
    /// it has read, where there is one.
    #[must_use]
    pub fn watching(self, path: PathBuf) -> Self {
        let programs = Programs { providers: self.providers.clone(), agents: self.agents.clone() };
        let watched = Watched::new(path, self.environment.clone(), programs);
        Self { watched: Some(watched), ..self }
    }

    /// The programs as the file says it now.
    pub(crate) fn programs(&self) -> Arc<Programs> {
        match &self.watched {
            Some(watched) => watched.programs(),
            None => Arc::new(Programs { providers: self.providers.clone(), agents: self.agents.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::runs::Permission;

    use super::*;

    #[test]
    fn what_programs_may_do_follows_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runner.yaml");
        let home = home.path().to_str().unwrap();
        let variables = [
            ("ENSEMBLE_SERVER", "http://s"),
            ("ENSEMBLE_MACHINE_ID", "m"),
            ("ENSEMBLE_MACHINE_TOKEN", "t"),
            ("HOME", home),
        ];
        let environment: Environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let config = Config::read(None, &environment).unwrap().watching(path.clone());
        let limit = || config.programs().providers[&Provider::Claude].permission_limit;
        assert_eq!(limit(), Permission::Edit);

        std::fs::write(&path, "providers: {claude: {permissionLimit: bypass}}\n").unwrap();
        assert_eq!(limit(), Permission::Bypass, "the file was made");
        std::fs::write(&path, "providers: {claude: {permissionLimit: byp").unwrap();
        assert_eq!(limit(), Permission::Bypass, "half a file changes nothing");
        std::fs::write(&path, "agents: {mine: {command: [mine, acp]}}\n").unwrap();
        assert_eq!(limit(), Permission::Edit);
        assert!(config.programs().agents.contains_key("mine"));
        std::fs::remove_file(&path).unwrap();
        assert!(config.programs().agents.is_empty());

        std::fs::write(&path, "providers: {claude: {enabled: false}}\n").unwrap();
        let read = Config::read(Some(&path), &environment).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(read.programs().providers[&Provider::Claude].enabled, "also a file that was there at the start");
    }
}
