//! Whether a provider's program can work: its version, and whether it is signed in. Each program is asked in its own
//! way, without a request to its maker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use ensemble_types::runs::Provider;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::agent;

/// Gemini needs four seconds on an idle machine, and many times that on a busy one.
const LONGEST: Duration = Duration::from_secs(60);
/// The answers have a few lines.
const MOST_BYTES: u64 = 64 << 10;

/// What a program says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub version: Version,
    pub sign_in: SignIn,
}

/// What `--version` gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    Is(String),
    /// The program cannot be started, with what the system says about it.
    NotStartable(String),
    /// The program did not say it in time, or not in a way that is understood. It may work.
    #[default]
    Unknown,
}

impl State {
    /// Whether the program can work, as far as it says.
    pub(crate) fn is_good(&self) -> bool {
        !matches!(self.sign_in, SignIn::No(_)) && !matches!(self.version, Version::NotStartable(_))
    }
}

impl Version {
    pub(crate) fn known(&self) -> Option<String> {
        match self {
            Self::Is(version) => Some(version.clone()),
            Self::NotStartable(_) | Self::Unknown => None,
        }
    }
}

/// Whether the program is signed in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SignIn {
    Yes,
    /// With what to do about it.
    No(&'static str),
    /// The program does not say. It may work.
    #[default]
    Unknown,
}

/// How to find out whether the program is signed in.
pub(super) enum Check {
    /// Run the program with these arguments and read the answer: its exit code, and what it printed.
    Ask(&'static [&'static str], fn(Option<i32>, &str) -> SignIn),
    /// The environment, or files in the home directory, say it.
    Known(SignIn),
}

/// Asks a program, with the environment and the arguments that it has in tasks. A `version` that is known already is not asked
/// for.
pub(crate) async fn ask(
    provider: Provider,
    program: &Path,
    environment: &BTreeMap<String, String>,
    args: &[String],
    version: Option<String>,
) -> State {
    let check = agent(provider).map_or(Check::Known(SignIn::Unknown), |agent| agent.sign_in(environment, args));
    let mut environment = environment.clone();
    // Gemini starts itself a second time, with more memory. An answer of one line needs none.
    environment.insert("GEMINI_CLI_NO_RELAUNCH".to_owned(), "true".to_owned());
    // As in tasks: in a directory that is not trusted it does not read `.gemini/.env` of the home directory. See `run` for the directory.
    environment.insert("GEMINI_CLI_TRUST_WORKSPACE".to_owned(), "true".to_owned());
    let (version, sign_in) = tokio::join!(
        async {
            match version {
                Some(version) => Version::Is(version),
                None => version_of(run(program, &["--version"], &environment).await),
            }
        },
        async {
            match check {
                Check::Known(sign_in) => sign_in,
                Check::Ask(args, read) => match run(program, args, &environment).await {
                    Ok(Some((code, printed))) => read(code, &printed),
                    Ok(None) | Err(_) => SignIn::Unknown,
                },
            }
        },
    );
    State { version, sign_in }
}

/// When what the programs keep of a sign-in was changed last. A sign-in outside of these files is found later.
pub(crate) fn changed_at(provider: Provider, environment: &BTreeMap<String, String>) -> Option<SystemTime> {
    let home = environment.get("HOME").map(PathBuf::from).unwrap_or_default();
    let folder =
        |variable: &str, usual: &str| environment.get(variable).map(PathBuf::from).unwrap_or_else(|| home.join(usual));
    let files = match provider {
        Provider::Claude => {
            let folder = folder("CLAUDE_CONFIG_DIR", ".claude");
            vec![home.join(".claude.json"), folder.join(".claude.json"), folder.join(".credentials.json")]
        }
        Provider::Codex => {
            let folder = folder("CODEX_HOME", ".codex");
            vec![folder.join("auth.json"), folder.join("config.toml")]
        }
        Provider::Gemini => {
            let folder = home.join(".gemini");
            ["oauth_creds.json", "settings.json", ".env"].map(|name| folder.join(name)).into()
        }
        Provider::Other(_) => Vec::new(),
    };
    files.iter().filter_map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok()).max()
}

/// The exit code of a program and what it printed. `None` when it took too long. What it started ends with it.
async fn run(
    program: &Path,
    args: &[&str],
    environment: &BTreeMap<String, String>,
) -> std::io::Result<Option<(Option<i32>, String)>> {
    let mut child = Command::new(program)
        .args(args)
        // What a repository says of the program counts for nothing here.
        .current_dir("/")
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let _group = Group::of(&child);
    let Some((stdout, stderr)) = child.stdout.take().zip(child.stderr.take()) else { return Ok(None) };
    let (mut printed, mut more) = (Vec::new(), Vec::new());
    let ended = async {
        let (mut stdout, mut stderr) = (stdout.take(MOST_BYTES), stderr.take(MOST_BYTES));
        let _ = tokio::join!(stdout.read_to_end(&mut printed), stderr.read_to_end(&mut more));
        child.wait().await
    };
    let Ok(status) = tokio::time::timeout(LONGEST, ended).await else { return Ok(None) };
    let code = status?.code();
    printed.append(&mut more);
    Ok(Some((code, String::from_utf8_lossy(&printed).into_owned())))
}

/// A program and everything that it has started, killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    /// Of a child that was started as the leader of a process group.
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An error says that nothing of it runs.
        self.0.map(|group| killpg(group, Signal::SIGKILL));
    }
}

/// The exit codes of `env` and of shells for a program that cannot be started or is not there (POSIX.1-2017, env, "Exit Status").
const NOT_STARTABLE: [i32; 2] = [126, 127];

fn version_of(answer: std::io::Result<Option<(Option<i32>, String)>>) -> Version {
    match answer {
        Err(error) => Version::NotStartable(error.to_string()),
        Ok(Some((Some(code), printed))) if NOT_STARTABLE.contains(&code) => {
            Version::NotStartable(printed.lines().next().unwrap_or_default().to_owned())
        }
        Ok(Some((_, printed))) => version_in(&printed).map_or(Version::Unknown, Version::Is),
        Ok(None) => Version::Unknown,
    }
}

/// The first word that looks like a version.
fn version_in(printed: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.contains('.')
            && word.len() <= 64
            && word.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
    };
    printed.split_whitespace().find(is_version).map(str::to_owned)
}

/// Claude Code: `claude auth status` prints JSON.
pub(super) fn of_claude(_: Option<i32>, printed: &str) -> SignIn {
    let answer = printed.find('{').and_then(|start| printed.get(start..));
    let answer: Option<Value> =
        answer.and_then(|json| serde_json::Deserializer::from_str(json).into_iter().next()?.ok());
    match answer.and_then(|answer| answer.get("loggedIn").and_then(Value::as_bool)) {
        Some(true) => SignIn::Yes,
        Some(false) => SignIn::No("run `claude` and type /login there, or set ANTHROPIC_API_KEY"),
        None => SignIn::Unknown,
    }
}

/// Codex: `codex login status` has exit code 0 when it is signed in.
pub(super) fn of_codex(code: Option<i32>, printed: &str) -> SignIn {
    if printed.contains("Not logged in") {
        SignIn::No("run `codex login`, or set CODEX_API_KEY")
    } else if code == Some(0) && printed.contains("Logged in") {
        SignIn::Yes
    } else {
        SignIn::Unknown
    }
}

/// The text of Codex's configuration.
pub(super) fn codex_configuration(environment: &BTreeMap<String, String>) -> Option<String> {
    let folder = environment.get("CODEX_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| environment.get("HOME").map(|home| Path::new(home).join(".codex")));
    folder.and_then(|folder| std::fs::read_to_string(folder.join("config.toml")).ok())
}

/// Whether Codex has another model provider than its maker's. Such a provider has its own sign-in.
pub(super) fn has_other_model(environment: &BTreeMap<String, String>, args: &[String]) -> bool {
    let names_provider = |text: &str| text.lines().any(|line| line.trim_start().starts_with("model_provider"));
    args.iter().any(|arg| names_provider(arg))
        || codex_configuration(environment).is_some_and(|text| names_provider(&text))
}

/// Gemini CLI: every command but `--version` needs what its settings select, or else a key in the environment, and has exit
/// code 41 without it. A sign-in with Google is a file, because asking for it can open a browser.
pub(super) fn of_gemini(environment: &BTreeMap<String, String>) -> Check {
    let home = environment.get("HOME").map(|home| Path::new(home).join(".gemini"));
    let settings = home.as_ref().and_then(|home| std::fs::read_to_string(home.join("settings.json")).ok());
    let settings: Value = settings.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let asks_google = environment.get("GOOGLE_GENAI_USE_GCA").is_some_and(|value| !value.is_empty());
    // `selectedAuthType` is of versions before 0.4.
    let selected = settings.pointer("/security/auth/selectedType").or_else(|| settings.get("selectedAuthType"));
    match selected.and_then(Value::as_str) {
        Some("oauth-personal") if home.is_some_and(|home| home.join("oauth_creds.json").exists()) => {
            Check::Known(SignIn::Yes)
        }
        Some("oauth-personal") => Check::Known(SignIn::No(GEMINI_SIGN_IN)),
        Some("gemini-api-key") => Check::Ask(&["--list-extensions"], |code, _| read_gemini(code, GEMINI_KEY)),
        Some("vertex-ai") => Check::Ask(&["--list-extensions"], |code, _| read_gemini(code, GEMINI_VERTEX)),
        None if !asks_google => Check::Ask(&["--list-extensions"], |code, _| read_gemini(code, GEMINI_SIGN_IN)),
        _ => Check::Known(SignIn::Unknown),
    }
}

const GEMINI_SIGN_IN: &str = "run `gemini` and sign in there, or set GEMINI_API_KEY, which may stand in ~/.gemini/.env";
const GEMINI_KEY: &str = "its settings choose an API key: set GEMINI_API_KEY, which may stand in ~/.gemini/.env";
const GEMINI_VERTEX: &str =
    "its settings choose Vertex AI: set GOOGLE_API_KEY, or GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION";

/// `lacks`: what to do when it is not signed in.
fn read_gemini(code: Option<i32>, lacks: &'static str) -> SignIn {
    match code {
        Some(0) => SignIn::Yes,
        Some(41) => SignIn::No(lacks),
        _ => SignIn::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_programs_are_understood() {
        assert_eq!(of_claude(Some(0), "{\n \"loggedIn\": true,\n \"authMethod\": \"api_key\"\n}\n"), SignIn::Yes);
        assert!(matches!(of_claude(Some(1), "{\"loggedIn\": false}"), SignIn::No(_)));
        assert_eq!(of_claude(Some(1), "error: unknown command 'auth'"), SignIn::Unknown);
        assert!(matches!(of_codex(Some(1), "WARNING: x\nNot logged in\n"), SignIn::No(_)));
        assert_eq!(of_codex(Some(0), "Logged in using ChatGPT\n"), SignIn::Yes);
        assert_eq!(of_codex(Some(2), "error"), SignIn::Unknown);
        assert_eq!(version_in("2.1.197 (Claude Code)\n").as_deref(), Some("2.1.197"));
        assert_eq!(version_in("codex-cli 0.169.0\n").as_deref(), Some("0.169.0"));
        assert_eq!(version_in("no version"), None);
    }

    #[test]
    fn a_sign_in_with_google_is_a_file() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".gemini");
        std::fs::create_dir(&folder).unwrap();
        let environment = BTreeMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let select = |kind: &str| {
            let settings = format!(r#"{{"security":{{"auth":{{"selectedType":"{kind}"}}}}}}"#);
            std::fs::write(folder.join("settings.json"), settings).unwrap();
        };
        assert!(matches!(of_gemini(&environment), Check::Ask(..)));
        select("oauth-personal");
        assert!(matches!(of_gemini(&environment), Check::Known(SignIn::No(_))));
        std::fs::write(folder.join("oauth_creds.json"), "{}").unwrap();
        assert!(matches!(of_gemini(&environment), Check::Known(SignIn::Yes)));
        select("gemini-api-key");
        assert!(matches!(of_gemini(&environment), Check::Ask(..)));
        select("cloud-shell");
        assert!(matches!(of_gemini(&environment), Check::Known(SignIn::Unknown)));
    }

    #[test]
    fn codex_with_another_model_is_not_asked_about_its_makers() {
        let home = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([("CODEX_HOME".to_owned(), home.path().display().to_string())]);
        assert!(!has_other_model(&environment, &[]));
        assert!(has_other_model(&environment, &["-c".to_owned(), "model_provider=x".to_owned()]));
        std::fs::write(home.path().join("config.toml"), "model = \"m\"\nmodel_provider = \"x\"\n").unwrap();
        assert!(has_other_model(&environment, &[]));
    }

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("agent");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    async fn version(program: &Path) -> Version {
        let environment = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        ask(Provider::Claude, program, &environment, &[], None).await.version
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let missing = version(Path::new("/does/not/exist")).await;
        assert_eq!(missing, Version::NotStartable("No such file or directory (os error 2)".to_owned()));
        let without_interpreter = script(folder.path(), "#!/usr/bin/env no-such-interpreter\n");
        let found = version(&without_interpreter).await;
        assert!(matches!(&found, Version::NotStartable(why) if why.contains("no-such-interpreter")), "{found:?}");
        // One that does not know the argument may work.
        assert_eq!(version(&script(folder.path(), "#!/bin/sh\nexit 1\n")).await, Version::Unknown);
        assert_eq!(version(&script(folder.path(), "#!/bin/sh\necho 1.2.3\n")).await, Version::Is("1.2.3".to_owned()));
    }

    #[tokio::test]
    async fn gemini_is_asked_as_it_works_in_tasks() {
        let home = tempfile::tempdir().unwrap();
        // So does the program: without this variable it reads `.gemini/.env` only where a person has trusted the directory.
        let text =
            "#!/bin/sh\n[ \"$GEMINI_CLI_TRUST_WORKSPACE\" = true ] && [ -e \"$HOME/.gemini/.env\" ] || exit 41\n";
        let program = script(home.path(), text);
        let folder = home.path().join(".gemini");
        std::fs::create_dir(&folder).unwrap();
        let environment = [("PATH", "/usr/bin:/bin"), ("HOME", home.path().to_str().unwrap())];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let sign_in = || async { ask(Provider::Gemini, &program, &environment, &[], None).await.sign_in };
        let settings = r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}}"#;
        assert_eq!(sign_in().await, SignIn::No(GEMINI_SIGN_IN));
        std::fs::write(folder.join("settings.json"), settings).unwrap();
        assert_eq!(sign_in().await, SignIn::No(GEMINI_KEY));
        std::fs::write(folder.join(".env"), "GEMINI_API_KEY=x\n").unwrap();
        assert_eq!(sign_in().await, SignIn::Yes);
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_ends_with_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (noted, text) = (folder.path().join("pid"), "#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $! >");
        let program = script(folder.path(), &format!("{text} {}\necho 1.2.3\n", noted.display()));
        assert_eq!(version(&program).await, Version::Is("1.2.3".to_owned()));
        let pid = Pid::from_raw(std::fs::read_to_string(&noted).unwrap().trim().parse().unwrap());
        // After KILL it may stay a zombie until the system's first process reaps it.
        let ended = async || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
        };
        ensemble_testkit::eventually(ensemble_testkit::SOON, ended).await;
    }
}
