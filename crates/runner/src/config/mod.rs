//! The configuration of the runner. Every setting that can have a default has one.
//!
//! [`Config::new`] builds one in code, [`Config::read`] reads one from a file and the environment.

mod agents;
mod file;
mod inherited;
mod programs;
mod timing;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_client::Credential;
use ensemble_host::sign_in::{Missing, missing};
use ensemble_host::{Agents, Environment, Hosting, Settings, demo, inherited_env};
use ensemble_process::Limits;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, Provider};
use serde::Deserialize;

use inherited::default_pass_env;

pub use file::ConfigErrors;
pub use timing::Timing;

/// The configuration of a runner.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's address: `https://ensemble.example.com`.
    pub server: String,
    pub machine: MachineId,
    /// The machine's key, with which it signs in, or a token that was made for it. A process that the runner starts gets neither.
    pub credential: Credential,
    /// The directory of attempts and undelivered reports. Only one runner may use it at a time.
    pub state_dir: PathBuf,
    /// The number of attempts at a time: 1 to 64.
    pub capacity: u32,
    /// The directories in which tasks may work. The workspaces in the state directory are always allowed.
    pub roots: Vec<PathBuf>,
    pub providers: BTreeMap<Provider, ProviderConfig>,
    /// Limits on each process of an attempt.
    pub limits: Limits,
    /// Allows programs to gain rights through set-user-id programs such as `sudo`.
    pub allow_new_privileges: bool,
    /// The limit of an attempt's output in bytes. Output beyond it is not sent.
    pub max_output_bytes: u64,
    /// The limit of output that waits on disk to be sent. When it is reached, the program has to wait.
    pub max_unsent_bytes: u64,
    /// The command that runs [`crate::run_if_guard`]. The default is this program with `runner guard`.
    pub guard: Vec<String>,
    /// The environment from which programs inherit the allowed variables.
    pub environment: Environment,
    /// Which tasks are done. `None` is [`Accept::Signed`], which needs `hosting`.
    pub accept: Option<Accept>,
    /// `None`: this machine hosts no live sessions.
    pub hosting: Option<Hosting>,
    /// Agents in addition to the three providers, by name. They speak the Agent Client Protocol (agentclientprotocol.com).
    pub agents: BTreeMap<String, AgentConfig>,
    /// Agents of sessions that run at once. The default is one for each 600 MiB of memory.
    pub max_agents: Option<u32>,
    pub timing: Timing,
    watched: Option<programs::Watched>,
    /// The files in which it was signed in.
    credential_files: Vec<PathBuf>,
}

/// Which tasks a runner does, and which orders about their worktrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// What a device of the owner has signed.
    Signed,
    /// Anything that the server says. A server that lies can make this machine do whatever its configuration allows.
    Any,
}

impl std::str::FromStr for Accept {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "signed" => Ok(Self::Signed),
            "any" => Ok(Self::Any),
            _ => Err("must be signed or any"),
        }
    }
}

/// An agent that speaks the Agent Client Protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// The program and its arguments: `[opencode, acp]`. An agent that needs no configuration has its own.
    #[serde(default)]
    pub command: Vec<String>,
    /// Additional variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables to inherit from the runner's environment. `NAME*` is a prefix.
    #[serde(default = "usual_env")]
    pub pass_env: Vec<String>,
    /// The permission of tasks that name none. The default is `edit`.
    pub permission: Option<Permission>,
    /// The most that a task may ask for. A task that asks for more gets this.
    pub permission_limit: Option<Permission>,
}

impl AgentConfig {
    /// An agent with this command.
    pub fn of(command: Vec<String>) -> Self {
        Self { command, pass_env: usual_env(), ..Self::default() }
    }
}

/// An agent of any maker has its login and its settings in variables of any name.
fn usual_env() -> Vec<String> {
    vec!["*".to_owned()]
}

/// The program of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    pub enabled: bool,
    /// A name on the search path, or a path.
    pub program: PathBuf,
    /// Additional arguments.
    pub args: Vec<String>,
    /// Additional variables.
    pub env: BTreeMap<String, String>,
    /// Variables to inherit from the runner's environment. `NAME*` is a prefix.
    pub pass_env: Vec<String>,
    /// The permission of tasks that name none.
    pub permission: Permission,
    /// The most that a task may ask for. A task that asks for more gets this.
    pub permission_limit: Permission,
    /// The patterns of tools that tasks may name, or `*` for any.
    pub allowed_tools: Vec<String>,
}

const NO_OWNER: &str = "it takes only tasks that its owner has signed, and knows no devices of its owner. Let `ensemble runner` or `ensemble runner \
     link` register the machine, which gives it a key; or set `account` (the owner's account key) and `keyFile`. With `accept: any` in \
     runner.yaml it takes unsigned tasks: then the server controls what this machine does";

impl ProviderConfig {
    /// Whether a task may do everything.
    pub(crate) fn allows_all(&self) -> bool {
        self.permission_limit.max(self.permission) == Permission::Bypass
    }

    /// Whether this tool is one that tasks may name.
    pub(crate) fn names(&self, tool: &str) -> bool {
        self.allowed_tools.iter().any(|allowed| allowed == "*" || allowed == tool)
    }

    pub fn of(provider: Provider) -> Self {
        Self {
            enabled: true,
            program: PathBuf::from(provider.as_str()),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: default_pass_env(provider),
            permission: Permission::Edit,
            permission_limit: Permission::Edit,
            allowed_tools: Vec::new(),
        }
    }
}

impl Config {
    /// A runner with the defaults: all three providers from the search path, and the home directory as the only root.
    pub fn new(
        server: impl Into<String>,
        machine: MachineId,
        credential: Credential,
        state_dir: impl Into<PathBuf>,
        environment: Environment,
    ) -> Self {
        Self {
            server: server.into(),
            machine,
            credential,
            state_dir: state_dir.into(),
            capacity: 4,
            roots: environment.get("HOME").map(PathBuf::from).into_iter().collect(),
            providers: Provider::ALL.into_iter().map(|provider| (provider, ProviderConfig::of(provider))).collect(),
            limits: Limits::default(),
            allow_new_privileges: false,
            max_output_bytes: 256 << 20,
            max_unsent_bytes: 64 << 20,
            guard: ensemble_process::default_guard(),
            environment,
            accept: None,
            hosting: None,
            agents: BTreeMap::new(),
            max_agents: None,
            timing: Timing::default(),
            watched: None,
            credential_files: Vec::new(),
        }
    }

    /// What belongs to the runner: folders and files. No session shows any of it.
    pub(crate) fn own(&self) -> Vec<PathBuf> {
        let watched = self.watched.as_ref().map(programs::Watched::path);
        [&*self.state_dir].into_iter().chain(watched).map(Path::to_owned).chain(self.credential_files.clone()).collect()
    }

    /// How guards and programs are started.
    fn process(&self) -> ensemble_process::Settings {
        ensemble_process::Settings {
            guard: self.guard.clone(),
            limits: self.limits,
            allow_new_privileges: self.allow_new_privileges,
            term_grace: self.timing.term_grace,
            leftover_grace: self.timing.leftover_grace,
            temporary: self.environment.get("TMPDIR").cloned(),
        }
    }

    /// What the host gets of it.
    pub(crate) fn settings(self: &Arc<Self>) -> Settings {
        let config = self.clone();
        let agents: Agents = Box::new(move |name| match name {
            Provider::DEMO => Ok(demo::known(&config.guard)),
            _ => config.known(name),
        });
        Settings {
            machine: self.machine.clone(),
            environment: self.environment.clone(),
            process: self.process(),
            agents,
            max_agents: self.max_agents,
            timing: self.timing.of_host(),
        }
    }

    pub fn accepts(&self) -> Accept {
        self.accept.unwrap_or(Accept::Signed)
    }

    /// Why a runner with this configuration could do no task at all.
    pub fn check_accept(&self) -> Result<(), &'static str> {
        match self.accepts() {
            Accept::Signed => self.check_owner(),
            Accept::Any => Ok(()),
        }
    }

    /// Whether the machine can know the devices of its owner.
    pub(crate) fn check_owner(&self) -> Result<(), &'static str> {
        let knows_owner = self.hosting.is_some() && matches!(self.credential, Credential::Device(_));
        if knows_owner { Ok(()) } else { Err(NO_OWNER) }
    }

    /// The environment of a provider's program: the inherited and the configured variables.
    pub(crate) fn program_env(&self, provider: &ProviderConfig) -> BTreeMap<String, String> {
        let mut env = inherited_env(&provider.pass_env, &self.environment);
        env.extend(provider.env.clone());
        env
    }

    /// What the program needs for the way to sign in that the variables choose, and does not get.
    pub fn missing(&self, provider: Provider) -> Vec<Missing> {
        let programs = self.programs();
        let settings = programs.providers.get(&provider).filter(|settings| settings.enabled);
        settings.map_or(Vec::new(), |settings| {
            missing(provider, &settings.args, &self.environment, &self.program_env(settings))
        })
    }
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
        let config = Config::new("http://s", MachineId::generate(), Credential::Bearer("t".into()), "/s", environment);
        let mut claude = ProviderConfig::of(Provider::Claude);
        claude.pass_env.push("*".to_owned());
        assert!(!config.program_env(&claude).contains_key("ENSEMBLE_MACHINE_TOKEN"));
        let claude = ProviderConfig::of(Provider::Claude);
        let names: Vec<String> = config.program_env(&claude).into_keys().collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "LC_ALL", "NO_COLOR", "PATH"]);
    }

    #[test]
    fn each_way_to_sign_in_has_its_variables() {
        // code.claude.com/docs: Amazon Bedrock, Google Vertex AI, Microsoft Foundry.
        let ways = [
            (
                Provider::Claude,
                "CLAUDE_CODE_USE_BEDROCK AWS_PROFILE AWS_REGION AWS_BEARER_TOKEN_BEDROCK AWS_SESSION_TOKEN",
            ),
            (
                Provider::Claude,
                "CLAUDE_CODE_USE_VERTEX CLOUD_ML_REGION GOOGLE_APPLICATION_CREDENTIALS VERTEX_REGION_CLAUDE_HAIKU_4_5",
            ),
            (Provider::Claude, "CLAUDE_CODE_USE_FOUNDRY ANTHROPIC_FOUNDRY_RESOURCE AZURE_CLIENT_ID"),
            (Provider::Codex, "OPENAI_API_KEY CODEX_API_KEY AZURE_OPENAI_API_KEY AWS_PROFILE"),
            (Provider::Gemini, "GEMINI_API_KEY GOOGLE_CLOUD_PROJECT GOOGLE_APPLICATION_CREDENTIALS CLOUDSDK_CONFIG"),
        ];
        for (provider, names) in ways {
            let environment: Environment = names.split(' ').map(|name| (name.to_owned(), "x".to_owned())).collect();
            let passed = inherited_env(&ProviderConfig::of(provider).pass_env, &environment);
            for name in environment.keys() {
                assert!(passed.contains_key(name), "{provider}: {name}");
            }
        }
    }
}
