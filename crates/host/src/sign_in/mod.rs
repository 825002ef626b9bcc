//! Whether a provider's program can work: its version, and whether it is signed in. Each program is asked in its own
//! way, without a request to its maker.

mod answers;
mod ways;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use ensemble_agent::known;
use ensemble_types::runs::Provider;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use answers::Check;
pub use answers::has_other_model;
pub use ways::Missing;
pub use ways::missing;

/// Gemini needs four seconds on an idle machine, and many times that on a busy one.
const LONGEST: Duration = Duration::from_secs(60);
/// Of the others nothing depends on the answer.
const LONGEST_OF_OTHERS: Duration = Duration::from_secs(5);
/// The answers have a few lines.
const MOST_BYTES: u64 = 64 << 10;

/// What a program says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub version: Version,
    pub sign_in: SignIn,
}

/// What `--version` gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Version {
    Is(String),
    /// The program cannot be started, with what the system says about it.
    NotStartable(String),
    /// Its line is one of another program with the same name.
    OfAnother(String),
    /// The program did not say it in time, or not in a way that is understood. It may work.
    #[default]
    Unknown,
}

impl State {
    /// Whether the program can work, as far as it says.
    pub fn is_good(&self) -> bool {
        !matches!(self.sign_in, SignIn::No(_))
            && !matches!(self.version, Version::NotStartable(_) | Version::OfAnother(_))
    }
}

impl Version {
    pub fn known(&self) -> Option<String> {
        match self {
            Self::Is(version) => Some(version.clone()),
            Self::NotStartable(_) | Self::OfAnother(_) | Self::Unknown => None,
        }
    }
}

/// Whether the program is signed in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignIn {
    Yes,
    /// With what to do about it.
    No(&'static str),
    /// The program does not say. It may work.
    #[default]
    Unknown,
}

/// Asks a program, with the environment and the arguments that it has in tasks. A `version` that is known already is not asked
/// for.
pub async fn ask(
    provider: Provider,
    program: &Path,
    environment: &BTreeMap<String, String>,
    args: &[String],
    version: Option<String>,
) -> State {
    let check = answers::check(provider, environment, args);
    let longest = if matches!(provider, Provider::Other(_)) { LONGEST_OF_OTHERS } else { LONGEST };
    let before = known::named(provider.as_str()).and_then(|known| known.version);
    let mut environment = environment.clone();
    // Gemini starts itself a second time, with more memory. An answer of one line needs none.
    environment.insert("GEMINI_CLI_NO_RELAUNCH".to_owned(), "true".to_owned());
    // As in tasks: in a directory that is not trusted it does not read `.gemini/.env` of the home directory. See `run` for the directory.
    environment.insert("GEMINI_CLI_TRUST_WORKSPACE".to_owned(), "true".to_owned());
    let (version, sign_in) = tokio::join!(
        async {
            match version {
                Some(version) => Version::Is(version),
                None => version_of(run(program, &["--version"], &environment, longest).await, before),
            }
        },
        async {
            match check {
                Check::Known(sign_in) => sign_in,
                Check::Ask(args, read) => match run(program, args, &environment, longest).await {
                    Ok(Some((code, printed))) => read(code, &printed),
                    Ok(None) | Err(_) => SignIn::Unknown,
                },
            }
        },
    );
    State { version, sign_in }
}

/// When what the programs keep of a sign-in was changed last. A sign-in outside of these files is found later.
pub fn changed_at(provider: Provider, environment: &BTreeMap<String, String>) -> Option<SystemTime> {
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
    longest: Duration,
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
    let Ok(status) = tokio::time::timeout(longest, ended).await else { return Ok(None) };
    let code = status?.code();
    printed.append(&mut more);
    Ok(Some((code, String::from_utf8_lossy(&printed).into_owned())))
}

/// A program and everything that it has started, killed when this is dropped.
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// Of a child that was started as the leader of a process group.
    pub(crate) fn of(child: &Child) -> Self {
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

/// `before`: what may stand before the version.
fn version_of(answer: std::io::Result<Option<(Option<i32>, String)>>, before: Option<&[&str]>) -> Version {
    match answer {
        Err(error) => Version::NotStartable(error.to_string()),
        Ok(Some((Some(code), printed))) if NOT_STARTABLE.contains(&code) => {
            Version::NotStartable(printed.lines().next().unwrap_or_default().to_owned())
        }
        Ok(Some((_, printed))) => version_in(&printed, before),
        Ok(None) => Version::Unknown,
    }
}

/// The first word that looks like a version, with one of these texts before it in its line.
fn version_in(printed: &str, before: Option<&[&str]>) -> Version {
    let is_version = |word: &&str| {
        let word = word.trim_start_matches('v');
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.contains('.')
            && word.len() <= 64
            && word.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
    };
    let mut of_another = None;
    for line in printed.lines() {
        let Some(version) = line.split_whitespace().find(is_version) else { continue };
        let text = line.split(version).next().unwrap_or_default().trim();
        if before.is_none_or(|before| before.contains(&text)) {
            return Version::Is(version.trim_start_matches('v').trim_end_matches('.').to_owned());
        }
        of_another.get_or_insert(line);
    }
    of_another.map_or(Version::Unknown, |line| Version::OfAnother(line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::answers::{GEMINI_KEY, GEMINI_SIGN_IN};
    use super::*;

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

    #[test]
    fn a_version_is_found_in_what_a_program_says() {
        let is = |version: &str| Version::Is(version.to_owned());
        let of = |name: &str, printed: &str| version_in(printed, known::named(name).unwrap().version);
        assert_eq!(of("claude", "2.1.197 (Claude Code)\n"), is("2.1.197"));
        assert_eq!(of("codex", "WARNING: x 1.2\ncodex-cli 0.169.0\n"), is("0.169.0"));
        assert_eq!(of("copilot", "GitHub Copilot CLI 1.0.89.\n"), is("1.0.89"));
        assert_eq!(of("goose", " 1.9.1\n"), is("1.9.1"));
        assert_eq!(of("goose", "goose version: v3.24.1\n"), Version::OfAnother("goose version: v3.24.1".to_owned()));
        assert_eq!(of("auggie", "any text 0.35.0 (commit)"), is("0.35.0"), "its line is not known");
        assert_eq!(of("claude", "no version"), Version::Unknown);
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
