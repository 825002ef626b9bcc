//! What the runner has to be told, with a default wherever there can be one.
//!
//! [`Config::new`] makes one from code, [`Config::read`] from a file and the environment.

mod file;
mod timing;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ensemble_types::ids::MachineId;
use ensemble_types::runs::Provider;
use secrecy::SecretString;

use crate::guard::Limits;
use crate::provider::{Permission, default_pass_env};

pub use file::ConfigErrors;
pub use timing::Timing;

/// The environment that the runner was started in.
pub type Environment = BTreeMap<String, String>;

/// Everything about a runner.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the service is: `https://ensemble.example.com`.
    pub server: String,
    pub machine: MachineId,
    /// The machine's token. It reaches no process that the runner starts.
    pub token: SecretString,
    /// Where attempts and undelivered reports are kept. One runner at a time.
    pub state_dir: PathBuf,
    /// How many attempts at once: 1 to 64.
    pub capacity: u32,
    /// The directories below which tasks may work. The state directory's workspaces are always allowed.
    pub roots: Vec<PathBuf>,
    pub providers: BTreeMap<Provider, ProviderConfig>,
    /// Limits on each process of an attempt.
    pub limits: Limits,
    /// Lets programs gain rights through set-user-id programs such as `sudo`.
    pub allow_new_privileges: bool,
    /// Beyond so many bytes the rest of an attempt's output is not sent.
    pub max_output_bytes: u64,
    /// Output that the server has not taken yet waits on disk up to this size; then the program has to wait.
    pub max_unsent_bytes: u64,
    /// The program and arguments that end in [`crate::guard_main`]: by default this program with `runner guard`.
    pub guard: Vec<String>,
    /// What programs inherit from, as far as they are allowed to.
    pub environment: Environment,
    pub timing: Timing,
}

/// One provider's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    pub enabled: bool,
    /// A name on the search path, or a path.
    pub program: PathBuf,
    /// Arguments beside those that the runner needs.
    pub args: Vec<String>,
    /// Variables that are set.
    pub env: BTreeMap<String, String>,
    /// Variables that are taken over from the runner's environment; `NAME*` is a prefix.
    pub pass_env: Vec<String>,
    pub permission: Permission,
}

impl ProviderConfig {
    pub fn of(provider: Provider) -> Self {
        Self {
            enabled: true,
            program: PathBuf::from(provider.as_str()),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: default_pass_env(provider),
            permission: Permission::default(),
        }
    }
}

impl Config {
    /// A runner with the defaults: all three providers from the search path, the home directory as the only root.
    pub fn new(
        server: impl Into<String>,
        machine: MachineId,
        token: SecretString,
        state_dir: impl Into<PathBuf>,
        environment: Environment,
    ) -> Self {
        Self {
            server: server.into(),
            machine,
            token,
            state_dir: state_dir.into(),
            capacity: 4,
            roots: environment.get("HOME").map(PathBuf::from).into_iter().collect(),
            providers: Provider::ALL.into_iter().map(|provider| (provider, ProviderConfig::of(provider))).collect(),
            limits: Limits::default(),
            allow_new_privileges: false,
            max_output_bytes: 256 << 20,
            max_unsent_bytes: 64 << 20,
            guard: default_guard(),
            environment,
            timing: Timing::default(),
        }
    }

    pub(crate) fn search_path(&self) -> &str {
        self.environment.get("PATH").map_or("", String::as_str)
    }

    /// The variables of a provider's program: what it may inherit, and what is set for it.
    pub(crate) fn program_env(&self, provider: &ProviderConfig) -> BTreeMap<String, String> {
        let may_pass = |name: &str| {
            // Ours carry the machine's token, and may come to carry more.
            !name.starts_with("ENSEMBLE_") && provider.pass_env.iter().any(|pattern| covers(pattern, name))
        };
        let inherited = self.environment.iter().filter(|(name, _)| may_pass(name));
        let mut env: BTreeMap<String, String> = inherited.map(|(name, value)| (name.clone(), value.clone())).collect();
        env.insert("NO_COLOR".to_owned(), "1".to_owned());
        env.extend(provider.env.clone());
        env
    }
}

fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// This very program, also after an update has replaced its file.
fn default_guard() -> Vec<String> {
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".to_owned()
    } else {
        std::env::current_exe().map_or_else(|_| "ensemble".to_owned(), |path| path.display().to_string())
    };
    vec![program, "runner".to_owned(), "guard".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_inherits_what_it_may_and_never_the_token() {
        let environment = [
            ("PATH", "/bin"),
            ("ANTHROPIC_API_KEY", "k"),
            ("OPENAI_API_KEY", "o"),
            ("ENSEMBLE_MACHINE_TOKEN", "t"),
            ("DATABASE_URL", "d"),
            ("LC_ALL", "C"),
        ];
        let environment: Environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let config = Config::new("http://s", MachineId::generate(), "t".into(), "/s", environment);
        let mut claude = ProviderConfig::of(Provider::Claude);
        claude.pass_env.push("*".to_owned());
        assert!(!config.program_env(&claude).contains_key("ENSEMBLE_MACHINE_TOKEN"));
        let claude = ProviderConfig::of(Provider::Claude);
        let names: Vec<String> = config.program_env(&claude).into_keys().collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "LC_ALL", "NO_COLOR", "PATH"]);
    }
}
