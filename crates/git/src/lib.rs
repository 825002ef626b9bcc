//! Calls of the program `git`, with nothing of the repository's or the person's configuration that runs other programs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::OnceCell;

pub mod difference;
mod pinned;
pub mod repository;
pub mod scratch;
pub mod snapshot;

/// A call of git that takes longer is ended.
const LONGEST: Duration = Duration::from_secs(120);
/// Of standard error.
const MOST_ERROR_BYTES: u64 = 4 << 10;

/// Switches off what else git would run or ask.
const SETTINGS: [&str; 18] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=false",
    "core.sshCommand=false",
    "core.quotePath=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "rerere.enabled=false",
    "submodule.recurse=false",
    "user.name=Ensemble",
    "user.email=ensemble@localhost",
];

/// Why a call of git did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git could not be started: {0}")]
    Start(#[source] std::io::Error),
    #[error("git {0} took longer than {LONGEST:?}")]
    TooLong(String),
    #[error("git {0} wrote more than {1} bytes")]
    TooMuch(String, usize),
    #[error("git {0} failed: {1}")]
    Failed(String, String),
    #[error("{0}")]
    Other(String),
}

impl From<std::io::Error> for GitError {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// What counts of the configuration of the person and of the system: whom the person trusts, what is ignored, and how lines end.
const OF_PERSON: [&str; 4] = ["safe.directory", "core.excludesFile", "core.autocrlf", "core.eol"];

/// How to call git on this machine.
#[derive(Clone, Debug)]
pub struct Git {
    env: BTreeMap<OsString, OsString>,
    /// A configuration in place of the person's, which holds [`OF_PERSON`] and nothing else.
    config: Option<PathBuf>,
    /// Where the configurations of the person and of the system are, if not in their usual places.
    places: Vec<(OsString, OsString)>,
    written: Arc<OnceCell<()>>,
    version: Arc<OnceCell<Option<(u32, u32)>>>,
}

/// One call. A relative path in the arguments begins at `directory`.
pub struct Call<'a> {
    git: &'a Git,
    directory: &'a Path,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    at_most: usize,
}

impl Git {
    /// `config` is a file that is written before the first call. Without one, the person's configuration counts as it is.
    pub fn new(environment: &BTreeMap<String, String>, config: Option<PathBuf>) -> Self {
        let inherited = ["PATH", "HOME", "TMPDIR", "XDG_CONFIG_HOME"]
            .into_iter()
            .filter_map(|name| Some((name.into(), environment.get(name)?.into())));
        let fixed = [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ADVICE", "0"),
        ];
        let places = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].into_iter();
        let places = places.filter_map(|name| Some((name.into(), environment.get(name)?.into()))).collect();
        let env = inherited.chain(fixed.map(|(name, value)| (name.into(), value.into()))).collect();
        Self { env, config, places, written: Arc::default(), version: Arc::default() }
    }

    /// Writes the configuration for the calls that follow.
    pub async fn prepare(&self) {
        let Some(config) = &self.config else { return };
        self.written
            .get_or_init(|| async {
                let person = Self { config: None, ..self.clone() };
                // What the person says comes last, so it counts.
                for (scope, name) in
                    ["--system", "--global"].into_iter().flat_map(|scope| OF_PERSON.map(|name| (scope, name)))
                {
                    let args = ["config", scope, "--includes", "--null", "--get-all", name];
                    let mut call = person.call(Path::new("/"), &args);
                    for (name, place) in &self.places {
                        call = call.env(name, place);
                    }
                    let (_, values, _) = call.run().await.unwrap_or_default();
                    for value in values.split(|byte| *byte == 0).filter(|value| !value.is_empty()) {
                        let value = OsStr::from_bytes(value);
                        let add = person.call(Path::new("/"), &["config", "--file"]).arg(config).arg("--add");
                        if let Err(error) = add.arg(name).arg(value).output().await {
                            tracing::warn!(name, "Cannot take over a setting of git: {error}");
                        }
                    }
                }
            })
            .await;
    }

    /// Major and minor. `None`: the program does not say it.
    pub async fn version(&self) -> Option<(u32, u32)> {
        let ask = async || {
            let said = self.call(Path::new("/"), &["version"]).line().await.ok()?;
            let mut numbers = said.split(' ').nth(2)?.split('.').map(|number| number.parse().ok());
            Some((numbers.next()??, numbers.next()??))
        };
        *self.version.get_or_init(ask).await
    }

    /// Whether git refuses to work in a directory because another user owns it.
    pub async fn distrusts(&self, directory: &Path) -> bool {
        let asked = self.call(directory, &["rev-parse", "--show-toplevel"]).run().await;
        asked.is_ok_and(|(_, _, error)| error.contains("dubious ownership"))
    }

    pub fn call<'a>(&'a self, directory: &'a Path, args: &[&str]) -> Call<'a> {
        let args = args.iter().map(OsString::from).collect();
        Call { git: self, directory, args, env: Vec::new(), input: Vec::new(), at_most: 64 << 10 }
    }
}

impl Call<'_> {
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// The longest output, in bytes. A longer one is an error.
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.at_most = bytes;
        self
    }

    /// The output of a call that succeeds.
    pub async fn output(self) -> Result<Vec<u8>, GitError> {
        let name = self.name();
        let (code, output, error) = self.run().await?;
        if code == Some(0) { Ok(output) } else { Err(GitError::Failed(name, error)) }
    }

    /// The output of a call that succeeds, as one line.
    pub async fn line(self) -> Result<String, GitError> {
        let name = self.name();
        let output = self.output().await?;
        let text = String::from_utf8(output).map_err(|_| GitError::Failed(name, "its output is no text".to_owned()))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// The exit code, the output, and the end of standard error.
    pub async fn run(self) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        let (name, at_most) = (self.name(), self.at_most);
        match tokio::time::timeout(LONGEST, self.run_unbounded()).await {
            Ok(Ok((_, output, _))) if output.len() > at_most => Err(GitError::TooMuch(name, at_most)),
            Ok(result) => result,
            Err(_) => Err(GitError::TooLong(name)),
        }
    }

    fn name(&self) -> String {
        self.args.first().map_or_else(String::new, |arg| arg.to_string_lossy().into_owned())
    }

    async fn run_unbounded(self) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        let mut command = Command::new("git");
        command.env_clear();
        if let Some(config) = &self.git.config {
            command.env("GIT_CONFIG_GLOBAL", config);
        }
        command.envs(&self.git.env).envs(self.env).current_dir(self.directory).arg("--no-pager");
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(GitError::Start)?;
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin.take() {
                // A git that fails does not read all of it, and its exit code says so.
                let _ = stdin.write_all(&self.input).await;
            }
        };
        let bound = u64::try_from(self.at_most).unwrap_or(u64::MAX).saturating_add(1);
        let read = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                // What is beyond the bound is not read: git ends, because its pipe is closed.
                let _ = stdout.take(bound).read_to_end(&mut output).await;
            }
            output
        };
        let read_error = async {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr).take(MOST_ERROR_BYTES).read_to_end(&mut text).await;
                // The rest must not block git.
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            }
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let ((), output, error) = tokio::join!(write, read, read_error);
        let status = child.wait().await.map_err(GitError::Start)?;
        Ok((status.code(), output, error))
    }
}
