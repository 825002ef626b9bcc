//! LiveKit's library for Python, in a separate virtual environment under the user's data. Found, or installed when the person agrees; else
//! an error says what is missing and what to do.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use ensemble_types::line::short;
use tokio::process::Command;

use crate::Environment;
use crate::error::{Error, Result};

/// The exact files, by their digests.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// This file says that all of it is there. Without it an earlier try has broken off.
const DONE: &str = "complete";
/// Another Python that has the library already.
const VARIABLE: &str = "ENSEMBLE_TALK_PYTHON";
const LEAST: (u32, u32) = (3, 10);
const SIZE: &str = "about 40 MB";

/// Whether a program can join a room.
pub enum Library {
    /// With this Python.
    Here(OsString),
    Missing(Missing),
}

/// What can be installed when the person agrees.
pub struct Missing {
    system: OsString,
    folder: PathBuf,
}

/// Finds the library.
pub async fn find(environment: &Environment) -> Result<Library> {
    if let Some(python) = environment.get(VARIABLE).filter(|python| !python.is_empty()) {
        return Ok(Library::Here(python.into()));
    }
    let folder = folder(environment).ok_or_else(|| {
        Error::sentence("There is no home directory for LiveKit's library. Set XDG_DATA_HOME, or use --page.")
    })?;
    let python = folder.join("bin/python");
    if folder.join(DONE).exists() && python.exists() {
        return Ok(Library::Here(python.into()));
    }
    Ok(Library::Missing(Missing { system: system_python().await?, folder }))
}

impl Missing {
    /// What is asked before it is installed.
    pub fn question(&self) -> String {
        format!(
            "To talk here, LiveKit's library for Python ({SIZE}, from PyPI, in {}) has to be installed. Install it",
            self.folder.display()
        )
    }

    /// Installs it. Returns the Python that has it.
    pub async fn install(&self) -> Result<OsString> {
        install(&self.system, &self.folder).await?;
        Ok(self.folder.join("bin/python").into())
    }
}

/// `$XDG_DATA_HOME/ensemble/talk-VERSION`, or `~/.local/share/…`; on macOS below `~/Library/Application Support`.
fn folder(environment: &Environment) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match absolute("XDG_DATA_HOME") {
        Some(data) => data,
        None if cfg!(target_os = "macos") => absolute("HOME")?.join("Library/Application Support"),
        None => absolute("HOME")?.join(".local/share"),
    };
    Some(base.join("ensemble").join(format!("talk-{}", version())))
}

/// Of LiveKit's library: another one gets another environment.
pub fn version() -> &'static str {
    let line = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("livekit=="));
    line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown")
}

/// The system's Python, which must be new enough and able to make an environment.
async fn system_python() -> Result<OsString> {
    let missing = |what: &str| {
        let how = if cfg!(target_os = "macos") {
            "`brew install python3`"
        } else {
            "on Debian and Ubuntu `apt install python3 python3-venv`, on Fedora `dnf install python3`"
        };
        Error::sentence(format!("{what} Install it ({how}), or talk in the browser: `ensemble talk --page`."))
    };
    let asked = |code: &'static str| async move { run(Command::new("python3").args(["-I", "-c", code])).await };
    let version = asked("import sys; print(*sys.version_info[:2])").await;
    let version =
        version.map_err(|_| missing("To talk here, Python 3.10 or newer is needed, and there is no python3."))?;
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<u32>().ok());
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < LEAST {
        let found = text.trim().replace(' ', ".");
        return Err(missing(&format!("To talk here, Python 3.10 or newer is needed, and python3 is {found}.")));
    }
    match asked("import venv, ensurepip").await {
        Ok(output) if output.status.success() => Ok("python3".into()),
        _ => Err(missing("python3 cannot make a virtual environment: it has no `venv` or no `ensurepip`.")),
    }
}

/// Makes the environment. What is left of an earlier try goes first.
async fn install(system: &OsString, folder: &Path) -> Result<()> {
    let cannot = |error: std::io::Error| Error::sentence(format!("{} cannot be written: {error}.", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(cannot)?;
    }
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent).map_err(cannot)?;
    }
    let made = run(Command::new(system).args(["-I", "-m", "venv"]).arg(folder)).await;
    succeeded("The virtual environment", made)?;
    let list = folder.join("requirements.txt");
    std::fs::File::create(&list).and_then(|mut file| file.write_all(REQUIREMENTS.as_bytes())).map_err(cannot)?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    // Files that were built elsewhere and have these digests: nothing is compiled or run while it is installed.
    pip.args(["--only-binary", ":all:", "--require-hashes", "--requirement"]).arg(&list);
    succeeded("LiveKit's library", run(&mut pip).await)?;
    std::fs::write(folder.join(DONE), version()).map_err(cannot)
}

async fn run(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).kill_on_drop(true).output().await
}

fn succeeded(what: &str, output: std::io::Result<Output>) -> Result<()> {
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing was said").to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(Error::sentence(format!(
        "{what} could not be installed: {}. `ensemble talk --page` leads to the page, where one talks in the browser.",
        short(&said, 300)
    )))
}
