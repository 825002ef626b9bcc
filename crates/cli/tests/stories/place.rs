//! Where a person works with real agents: their home, the programs, and a model of the tests.

use std::path::{Path, PathBuf};

use ensemble_doubles::model::{StandIn, claude_has_sessions, opencode_has_its_packages};
use serde_json::json;
use tempfile::TempDir;

use crate::ensemble::User;
use crate::live::{host_of, kill};

/// A user with real agents, which talk to a model of the tests.
pub(crate) struct Place {
    pub(crate) user: User,
    _programs: TempDir,
    pub(crate) model: StandIn,
    _runtime: tokio::runtime::Runtime,
}

/// A folder with these of the installed programs, and under which name. A runner asks all that it finds for their version, and gemini takes
/// two seconds of a processor for that.
fn programs(wanted: &[(&str, &str)]) -> TempDir {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/provider-clis/node_modules/.bin");
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in wanted {
        let program = installed.join(program).canonicalize().expect("tests/provider-clis/install must have run");
        std::os::unix::fs::symlink(program, folder.path().join(name)).unwrap();
    }
    folder
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With these environment variables.
    pub(crate) fn with(variables: &[(&'static str, &'static str)]) -> Self {
        Self::of(&[("claude", "claude"), ("codex", "codex")], variables)
    }

    /// With one agent, by its name and its program.
    pub(crate) fn with_agent(name: &str, program: &str) -> Self {
        Self::of(&[(name, program)], &[])
    }

    /// With these agents, by their names and their programs.
    pub(crate) fn with_agents(wanted: &[(&str, &str)]) -> Self {
        Self::of(wanted, &[])
    }

    fn of(wanted: &[(&str, &str)], variables: &[(&'static str, &'static str)]) -> Self {
        let programs = programs(wanted);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let model = StandIn::start().unwrap();
        drop(guard);
        let url: &'static str = model.url().leak();
        let models = json!({"stub-model": {"name": "stub", "limit": {"context": 100_000, "output": 8_000}}});
        let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "stand-in"});
        let provider = json!({"stub": {"npm": "@ai-sdk/anthropic", "options": options, "models": models}});
        let opencode = json!({"model": "stub/stub-model", "small_model": "stub/stub-model", "provider": provider});
        let has_codex = wanted.iter().any(|(name, _)| *name == "codex");
        let user = if has_codex { User::new(None).at_home_for_codex() } else { User::new(None) };
        let user = variables.iter().fold(user, |user, (name, value)| user.with_variable(name, value));
        let user = user
            .with_programs(programs.path())
            .with_variable("ANTHROPIC_BASE_URL", url)
            .with_variable("ANTHROPIC_API_KEY", "stand-in")
            .with_variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .with_variable("CLAUDE_CODE_MAX_RETRIES", "1")
            .with_variable("DISABLE_TELEMETRY", "1")
            .with_variable("OPENAI_API_KEY", "stand-in")
            .with_variable("GEMINI_API_KEY", "stand-in")
            .with_variable("GOOGLE_GEMINI_BASE_URL", url)
            .with_variable("OPENCODE_CONFIG_CONTENT", opencode.to_string().leak())
            .with_variable("OPENCODE_DISABLE_MODELS_FETCH", "1");
        let gemini = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false},
            "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false},
        });
        claude_has_sessions(user.home()).unwrap();
        std::fs::create_dir_all(user.home().join(".gemini")).unwrap();
        std::fs::write(user.home().join(".gemini/settings.json"), gemini.to_string()).unwrap();
        let codex = format!(
            "model_providers.standin={{name=\"standin\",base_url=\"{url}/v1\",env_key=\"OPENAI_API_KEY\",\
             wire_api=\"responses\",stream_max_retries=0,request_max_retries=0}}"
        );
        let pass = ["PATH", "HOME", "OPENAI_API_KEY"];
        // Its sandbox hides what is in /dev, where the homes of tests may be, as soon as the folder for temporary files is there too.
        let env = json!({"TMPDIR": "/tmp"});
        let file = json!({
            "providers": {"codex": {"args": ["-c", "model_provider=standin", "-c", codex], "passEnv": pass, "env": env}},
            // On a busy machine an agent that obeys an interrupt needs longer than the 15 s of production.
            "timing": {"interruptedWithinMs": 120_000},
        });
        if wanted.iter().any(|(name, _)| *name == "opencode") {
            opencode_has_its_packages(user.home()).unwrap();
        }
        std::fs::create_dir_all(user.files()).unwrap();
        std::fs::write(user.files().join("runner.yaml"), file.to_string()).unwrap();
        std::fs::create_dir(user.home().join("work")).unwrap();
        // Codex makes it itself, but not in a folder for temporary files.
        std::fs::create_dir(user.home().join(".codex")).unwrap();
        Self { user, _programs: programs, model, _runtime: runtime }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.user.home().join("work").join(name)
    }

    /// Starts a session in the directory `work`, and returns its ref.
    pub(crate) fn start(&self, words: &[&str]) -> String {
        let mut all = words.to_vec();
        all.extend(["--dir", "work", "--detach"]);
        self.user.succeed(&all).trim().to_owned()
    }
}

impl Drop for Place {
    /// A host in the background continues without its server.
    fn drop(&mut self) {
        if let Some(host) = host_of(&self.user) {
            kill(host);
        }
    }
}
