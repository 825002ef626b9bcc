//! The configuration file (YAML or JSON), and the variables that override it.
//!
//! | Variable | What |
//! |---|---|
//! | `ENSEMBLE_SERVER` | `server` |
//! | `ENSEMBLE_MACHINE_ID` | `machineId` |
//! | `ENSEMBLE_MACHINE_KEY_FILE` | `keyFile`: the machine's key, which is in its owner's device list |
//! | `ENSEMBLE_MACHINE_ACCOUNT` | `account`: the owner's account key. With it the machine hosts live sessions |
//! | `ENSEMBLE_MACHINE_TOKEN` | a token itself, instead of `tokenFile` or a key |
//! | `ENSEMBLE_RUNNER_STATE_DIR` | `stateDir` |
//! | `ENSEMBLE_RUNNER_ACCEPT` | `accept`: `signed` or `any` |
//! | `ENSEMBLE_RUNNER_CAPACITY` | `capacity` |
//! | `ENSEMBLE_RUNNER_ROOTS` | `roots`, separated by colons |
//! | `ENSEMBLE_RUNNER_<PROVIDER>_PROGRAM` | `providers.<provider>.program` |
//! | `ENSEMBLE_RUNNER_<PROVIDER>_PERMISSION` | `providers.<provider>.permission` |
//! | `ENSEMBLE_RUNNER_<PROVIDER>_PERMISSION_LIMIT` | `providers.<provider>.permissionLimit` |

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_agent::known;
use ensemble_client::Credential;
use ensemble_process::Limits;
use ensemble_protocol::AccountKey;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, Provider};
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;

use super::{Accept, AgentConfig, Config, Environment, Hosting, ProviderConfig, Timing};

/// Everything that is wrong with a configuration, so that it can be corrected at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runner's configuration has errors: {}", self.0.join("; "))
    }
}

impl std::error::Error for ConfigErrors {}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    server: Option<String>,
    machine_id: Option<String>,
    key_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    capacity: Option<u32>,
    roots: Option<Vec<PathBuf>>,
    providers: BTreeMap<Provider, ProviderFile>,
    agents: BTreeMap<String, AgentConfig>,
    account: Option<String>,
    accept: Option<Accept>,
    max_agents: Option<u32>,
    limits: Limits,
    allow_new_privileges: bool,
    max_output_bytes: Option<u64>,
    max_unsent_bytes: Option<u64>,
    guard: Option<Vec<String>>,
    timing: Timing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ProviderFile {
    enabled: Option<bool>,
    program: Option<PathBuf>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    pass_env: Option<Vec<String>>,
    permission: Option<Permission>,
    permission_limit: Option<Permission>,
    allowed_tools: Vec<String>,
}

impl Config {
    /// Reads the optional file and the variables. All errors are reported together.
    pub fn read(path: Option<&Path>, environment: &Environment) -> Result<Self, ConfigErrors> {
        let file = match path {
            Some(path) => read_file(path).map_err(|error| ConfigErrors(vec![error]))?,
            None => File::default(),
        };
        let mut reading = Reading { environment, errors: Vec::new(), credential_files: Vec::new() };
        let config = reading.config(file);
        match config {
            Some(config) if reading.errors.is_empty() => Ok(match path {
                Some(path) => config.watching(path.to_owned()),
                None => config,
            }),
            _ => Err(ConfigErrors(reading.errors)),
        }
    }
}

fn read_file(path: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_yaml_ng::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

struct Reading<'a> {
    environment: &'a Environment,
    errors: Vec<String>,
    credential_files: Vec<PathBuf>,
}

impl Reading<'_> {
    fn var(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn parsed<T: std::str::FromStr<Err: fmt::Display>>(&mut self, name: &str) -> Option<T> {
        match self.var(name)?.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(format!("{name}: {error}"));
                None
            }
        }
    }

    fn required<T>(&mut self, value: Option<T>, what: &str) -> Option<T> {
        if value.is_none() {
            self.errors.push(format!("{what} is missing"));
        }
        value
    }

    fn config(&mut self, file: File) -> Option<Config> {
        let server = self.var("ENSEMBLE_SERVER").map(str::to_owned).or(file.server);
        let server = self.required(server, "server (ENSEMBLE_SERVER)");
        let machine = self.machine(file.machine_id.as_deref());
        let credential = self.credential(file.key_file, file.token_file);
        let state_dir = self.state_dir(file.state_dir);
        let capacity = self.parsed("ENSEMBLE_RUNNER_CAPACITY").or(file.capacity).unwrap_or(4);
        if !(1..=64).contains(&capacity) {
            self.errors.push(format!("capacity (ENSEMBLE_RUNNER_CAPACITY) must be 1 to 64, not {capacity}"));
        }
        let roots =
            self.var("ENSEMBLE_RUNNER_ROOTS").map(|roots| std::env::split_paths(roots).collect()).or(file.roots);
        let providers = self.providers(file.providers);
        let mut config = Config::new(server?, machine?, credential?, state_dir?, self.environment.clone());
        config.capacity = capacity;
        config.credential_files = std::mem::take(&mut self.credential_files);
        config.roots = roots.unwrap_or(config.roots);
        config.providers = providers;
        self.check_agents(&file.agents);
        config.agents = file.agents;
        config.max_agents = file.max_agents;
        if file.max_agents == Some(0) {
            self.errors.push("maxAgents must be at least 1".to_owned());
        }
        let account = self.var("ENSEMBLE_MACHINE_ACCOUNT").map(str::to_owned).or(file.account);
        config.hosting = account.map(|account| Hosting {
            account,
            folder: config.state_dir.join("host"),
            own: Vec::new(),
            sessions_only: false,
            ready: Arc::default(),
        });
        config.accept = self.parsed("ENSEMBLE_RUNNER_ACCEPT").or(file.accept);
        config.limits = file.limits;
        config.allow_new_privileges = file.allow_new_privileges;
        config.max_output_bytes = file.max_output_bytes.unwrap_or(config.max_output_bytes);
        config.max_unsent_bytes = file.max_unsent_bytes.unwrap_or(config.max_unsent_bytes);
        config.guard = file.guard.filter(|guard| !guard.is_empty()).unwrap_or(config.guard);
        config.timing = file.timing;
        self.check_roots(&config.roots);
        Some(config)
    }

    fn machine(&mut self, from_file: Option<&str>) -> Option<MachineId> {
        let id = self.var("ENSEMBLE_MACHINE_ID").or(from_file).map(str::to_owned);
        let id = self.required(id, "machineId (ENSEMBLE_MACHINE_ID)")?;
        let parsed = id.parse().ok();
        if parsed.is_none() {
            self.errors
                .push("machineId (ENSEMBLE_MACHINE_ID) must be 1 to 64 characters of A-Z a-z 0-9 _ -".to_owned());
        }
        parsed
    }

    fn credential(&mut self, key_file: Option<PathBuf>, token_file: Option<PathBuf>) -> Option<Credential> {
        if let Some(token) = self.var("ENSEMBLE_MACHINE_TOKEN") {
            return Some(Credential::Bearer(token.trim().into()));
        }
        if let Some(file) = self.var("ENSEMBLE_MACHINE_KEY_FILE").map(PathBuf::from).or(key_file) {
            let key = self.secret("keyFile", &file)?;
            let key = AccountKey::from_text(&key);
            if key.is_none() {
                self.errors.push(format!("keyFile: {} is not a key that `ensemble` has made", file.display()));
            }
            return key.map(Credential::Device);
        }
        let file = self.required(token_file, "keyFile, tokenFile or ENSEMBLE_MACHINE_TOKEN")?;
        let token = self.secret("tokenFile", &file)?;
        Some(Credential::Bearer(token.trim().into()))
    }

    /// The text in a file. It is wiped from memory.
    fn secret(&mut self, name: &str, file: &Path) -> Option<Zeroizing<String>> {
        self.credential_files.push(file.to_owned());
        match std::fs::read_to_string(file).map(Zeroizing::new) {
            Ok(text) if !text.trim().is_empty() => Some(text),
            Ok(_) => {
                self.errors.push(format!("{name}: {} is empty", file.display()));
                None
            }
            Err(error) => {
                self.errors.push(format!("{name}: {}: {error}", file.display()));
                None
            }
        }
    }

    fn state_dir(&mut self, from_file: Option<PathBuf>) -> Option<PathBuf> {
        let below_home = |home: &str| PathBuf::from(home).join(".local/state");
        let standard = self.var("XDG_STATE_HOME").map(PathBuf::from).or_else(|| self.var("HOME").map(below_home));
        let chosen = self.var("ENSEMBLE_RUNNER_STATE_DIR").map(PathBuf::from).or(from_file);
        let chosen = chosen.or(standard.map(|state| state.join("ensemble/runner")));
        self.required(chosen, "stateDir (ENSEMBLE_RUNNER_STATE_DIR)")
    }

    fn providers(&mut self, mut files: BTreeMap<Provider, ProviderFile>) -> BTreeMap<Provider, ProviderConfig> {
        let mut providers = BTreeMap::new();
        for provider in Provider::ALL {
            let file = files.remove(&provider).unwrap_or_default();
            let prefix = format!("ENSEMBLE_RUNNER_{}", provider.as_str().to_uppercase());
            let program = self.var(&format!("{prefix}_PROGRAM")).map(PathBuf::from).or(file.program);
            let permission = self.parsed(&format!("{prefix}_PERMISSION")).or(file.permission);
            let limit = self.parsed(&format!("{prefix}_PERMISSION_LIMIT")).or(file.permission_limit);
            let standard = ProviderConfig::of(provider);
            let permission = permission.unwrap_or(standard.permission);
            if limit.is_some_and(|limit| limit < permission) {
                self.errors
                    .push(format!("providers.{provider}.permissionLimit is less than its permission, {permission}"));
            }
            for name in file.env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
                self.errors.push(format!("providers.{provider}.env: {name:?} is not the name of a variable"));
            }
            let config = ProviderConfig {
                enabled: file.enabled.unwrap_or(standard.enabled),
                program: program.unwrap_or(standard.program),
                args: file.args,
                env: file.env,
                pass_env: file.pass_env.unwrap_or(standard.pass_env),
                permission,
                permission_limit: limit.unwrap_or(standard.permission_limit.max(permission)),
                allowed_tools: file.allowed_tools,
            };
            providers.insert(provider, config);
        }
        for name in files.keys() {
            self.errors
                .push(format!("providers.{name} is not claude, codex or gemini. Other agents are under `agents`"));
        }
        providers
    }

    fn check_agents(&mut self, agents: &BTreeMap<String, AgentConfig>) {
        for (name, agent) in agents {
            if !matches!(name.parse(), Ok(Provider::Other(_))) {
                self.errors.push(format!(
                    "agents.{name}: the name must be 1 to 32 of a-z 0-9 -, begin with a letter, and be no provider"
                ));
            }
            if agent.permission_limit.is_some_and(|limit| limit < agent.permission.unwrap_or(Permission::Edit)) {
                self.errors.push(format!("agents.{name}.permissionLimit is less than its permission"));
            }
            let has_its_own = known::named(name).is_some_and(|known| known.starts.is_some());
            if agent.command.first().map_or(!has_its_own, String::is_empty) {
                self.errors.push(format!("agents.{name}.command is empty"));
            }
        }
    }

    fn check_roots(&mut self, roots: &[PathBuf]) {
        for root in roots.iter().filter(|root| !root.is_absolute()) {
            self.errors.push(format!("roots: {} is not absolute", root.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_errors_come_at_once() {
        let vars = environment(&[("ENSEMBLE_RUNNER_CAPACITY", "many"), ("ENSEMBLE_RUNNER_CODEX_PERMISSION", "all")]);
        let errors = Config::read(None, &vars).unwrap_err().0.join("\n");
        for wanted in ["server", "machineId", "tokenFile", "stateDir", "CAPACITY", "CODEX_PERMISSION: must be plan"] {
            assert!(errors.contains(wanted), "{wanted} in\n{errors}");
        }
    }

    #[test]
    fn variables_override_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret\n").unwrap();
        let path = folder.path().join("runner.yaml");
        let text = format!(
            "server: http://file\nmachineId: m1\ntokenFile: {}\nstateDir: /state\nroots: [/a]\n\
             providers:\n  codex:\n    permission: bypass\n    args: [--x]\ntiming:\n  leaseBeatMs: 5\n",
            token.display()
        );
        std::fs::write(&path, text).unwrap();
        let vars = environment(&[("ENSEMBLE_SERVER", "http://var"), ("ENSEMBLE_RUNNER_CODEX_PROGRAM", "/bin/c")]);
        let config = Config::read(Some(&path), &vars).unwrap();
        assert_eq!(config.server, "http://var");
        let Credential::Bearer(token) = &config.credential else { panic!("no token: {config:?}") };
        assert_eq!(token.expose_secret(), "secret");
        let codex = &config.providers[&Provider::Codex];
        assert_eq!((codex.permission, codex.program.to_str()), (Permission::Bypass, Some("/bin/c")));
        assert_eq!(config.timing.lease_beat.as_millis(), 5);
        assert_eq!(config.timing.term_grace, Timing::default().term_grace);
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn a_key_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("key"), folder.path().join("bad"));
        let key = AccountKey::generate();
        std::fs::write(&good, key.to_text().as_bytes()).unwrap();
        std::fs::write(&bad, "ensemble-account-key-v1:no").unwrap();
        let with = |path: &Path| {
            let vars = [
                ("ENSEMBLE_SERVER", "http://s"),
                ("ENSEMBLE_MACHINE_ID", "m"),
                ("HOME", "/h"),
                ("ENSEMBLE_MACHINE_KEY_FILE", path.to_str().unwrap()),
            ];
            Config::read(None, &environment(&vars))
        };
        let Credential::Device(read) = with(&good).unwrap().credential else { panic!("no key") };
        assert_eq!(read.public_key(), key.public_key());
        assert_eq!(with(&good).unwrap().own(), [Path::new("/h/.local/state/ensemble/runner"), &good]);
        assert!(with(&bad).unwrap_err().to_string().contains("is not a key"));
        assert!(with(&folder.path().join("none")).unwrap_err().to_string().contains("keyFile"));
    }

    #[test]
    fn a_misspelt_field_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.yaml");
        for (text, misspelt) in [("servr: x\n", "servr"), ("providers: {cluade: {}}\n", "cluade")] {
            std::fs::write(&path, text).unwrap();
            let errors = Config::read(Some(&path), &Environment::new()).unwrap_err().to_string();
            assert!(errors.contains(misspelt), "{errors}");
        }
    }
}
