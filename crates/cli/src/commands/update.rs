//! `ensemble update`: names the newest version and how to install it. What `install.sh` installed it replaces with the script of this program,
//! so that the checks are those of a program that is trusted already, and not of a script from the network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::DONE;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::print;

const SCRIPT: &str = include_str!("../../../../deploy/release/install.sh");
const NAMES: &str = include_str!("../../../../deploy/release/names");
/// The file next to the program that says how it was installed.
const MARK: &str = ".ensemble-install";
const OF_DEBIAN: &str = "/var/lib/dpkg/info/ensemble.list";
/// Longer than the downloads of the script may take together.
const LONGEST: Duration = Duration::from_secs(3600);
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Names the newest version and the command that installs it. What install.sh installed is replaced, after the same checks
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Only name the newest version and the command
    #[arg(long)]
    check: bool,
    /// The address of the releases [default: the one that this program was built with]
    #[arg(long, value_name = "URL")]
    releases: Option<String>,
}

/// The way in which this program was installed.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Script(PathBuf),
    Npm,
    Homebrew,
    Debian,
    Image,
    Other,
}

impl Update {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let of_tests = environment().remove("ENSEMBLE_RELEASES").filter(|address| !address.is_empty());
        let releases = self.releases.clone().or(of_tests).or_else(|| name("releases").map(str::to_owned));
        let Some(releases) = releases else {
            return Err(Failure::message(
                "This build has no address of releases. Name one with `ensemble update --releases URL`, or build the newest commit as \
                 README.md says.",
            ));
        };
        let mut newest = String::new();
        self.script(&["--newest"], |line| {
            newest = line;
            Ok(())
        })
        .await?;
        let program = std::env::current_exe()?;
        let way = Way::of(&program);
        let is_newer = order(&newest) > order(VERSION);
        let directory = match &way {
            Way::Script(directory) if is_newer && !self.check => Some(directory),
            _ => None,
        };
        let how = way.how(&newest, releases.trim_end_matches('/'), &program);
        if let Some(directory) = directory {
            let no_text = || Failure::message("The name of the program's folder is not valid text.");
            let directory = directory.to_str().ok_or_else(no_text)?;
            let show = |line: String| {
                if context.json {
                    print::note(line);
                    return Ok(());
                }
                print::line(line)
            };
            self.script(&["--version", &newest, "--dir", directory], show).await?;
        }
        if context.json {
            let how = is_newer.then_some(how);
            print::json(
                &json!({ "version": VERSION, "newest": newest, "how": how, "updated": directory.is_some() }),
                false,
            )?;
        } else if !is_newer {
            print::line(format!("This is {VERSION}, and the newest version is {newest}: there is nothing to update."))?;
        } else if directory.is_none() {
            print::line(format!("This is {VERSION}, and the newest version is {newest}. {how}"))?;
        }
        Ok(DONE)
    }

    /// Runs `install.sh` as this program has it, and gives away the lines that it prints.
    async fn script(&self, arguments: &[&str], mut each: impl FnMut(String) -> Result<()>) -> Result<()> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script(), "install.sh"]).args(arguments).kill_on_drop(true);
        command.args(self.releases.iter().flat_map(|releases| ["--releases", releases]));
        command.current_dir("/").env_clear().envs(kept(environment()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take();
        let read = async {
            let Some(out) = out else { return Ok(()) };
            let mut lines = BufReader::new(out).lines();
            while let Some(line) = lines.next_line().await? {
                each(line)?;
            }
            Ok::<_, Failure>(())
        };
        let ended = tokio::time::timeout(LONGEST, async { tokio::join!(read, child.wait_with_output()) }).await;
        let (read, ended) = ended.map_err(|_| Failure::message("The download took too long. Try again."))?;
        read?;
        let ended = ended?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.trim().replace("install.sh: ", "");
        Err(Failure::message(format!("Nothing was updated: {said}.")))
    }
}

/// What the script gets of this terminal: nothing that could change what is checked, or by which program.
fn kept(mut all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    const KEPT: [&str; 4] = ["HOME", "SHELL", "TMPDIR", "ENSEMBLE_RELEASES"];
    const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
    let folders = all.remove("PATH").unwrap_or_default();
    let folders = folders.split(':').filter(|folder| folder.starts_with('/')).collect::<Vec<_>>().join(":");
    all.retain(|name, _| KEPT.contains(&name.as_str()) || PROXIES.contains(&name.to_lowercase().as_str()));
    all.insert("PATH".to_owned(), folders);
    all
}

/// The script with the names of this build. Its version is always an argument.
fn script() -> String {
    ["releases", "signer"].into_iter().fold(SCRIPT.to_owned(), |script, one| {
        script.replace(&format!("@{}@", one.to_uppercase()), name(one).unwrap_or_default())
    })
}

/// A name under which releases are published, if the project owns it.
fn name(one: &str) -> Option<&'static str> {
    let line = NAMES.lines().find_map(|line| line.strip_prefix(one)?.strip_prefix('='));
    line.filter(|name| !name.is_empty())
}

/// The numbers, then whether it is a release, which follows its candidates, then the parts of a candidate's name.
type Order<'a> = (Vec<u64>, bool, Vec<(Option<u64>, &'a str)>);

fn order(version: &str) -> Order<'_> {
    let (numbers, candidate) = version.split_once('-').unwrap_or((version, ""));
    let numbers = numbers.split('.').map(|number| number.parse().unwrap_or_default()).collect();
    (numbers, candidate.is_empty(), candidate.split('.').map(|part| (part.parse().ok(), part)).collect())
}

impl Way {
    fn of(program: &Path) -> Self {
        let has = |folder: &str| program.components().any(|part| part.as_os_str() == folder);
        let directory = program.parent().unwrap_or(program);
        match fs::read_to_string(directory.join(MARK)).as_deref().map(str::trim) {
            Ok("install.sh") => return Self::Script(directory.to_owned()),
            Ok("image") => return Self::Image,
            _ => {}
        }
        let files = fs::read_to_string(OF_DEBIAN).unwrap_or_default();
        if has("node_modules") {
            Self::Npm
        } else if has("Cellar") {
            Self::Homebrew
        } else if files.lines().any(|file| Path::new(file) == program) {
            Self::Debian
        } else {
            Self::Other
        }
    }

    /// What to type, as sentences.
    fn how(&self, newest: &str, releases: &str, program: &Path) -> String {
        let from = format!("{releases}/download/v{newest}/ensemble-{newest}-{}-{}", std::env::consts::ARCH, system());
        match self {
            Self::Script(_) => "Type `ensemble update`.".to_owned(),
            Self::Npm => {
                let package =
                    name("npm_scope").map_or_else(|| "PACKAGE".to_owned(), |scope| format!("{scope}/ensemble"));
                format!("Type `npm install --global {package}@{newest}`.")
            }
            Self::Homebrew => {
                let formula =
                    name("homebrew_tap").map_or_else(|| "ensemble".to_owned(), |tap| format!("{tap}/ensemble"));
                format!("Type `brew update && brew upgrade {formula}`.")
            }
            Self::Debian => format!(
                "Download {from}.deb, compare its SHA-256 with {from}.sha256, and type `sudo apt install ./` and the file's name."
            ),
            Self::Image => format!(
                "Start the container again with the image {}:{newest} and the same volume.",
                name("image").unwrap_or("ensemble")
            ),
            Self::Other => format!(
                "Download {from}.tar.gz, compare its SHA-256 with {from}.sha256, and put its program in the place of {}.",
                program.display()
            ),
        }
    }
}

fn system() -> &'static str {
    if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_comes_before_its_release() {
        for (older, newer) in
            [("0.9.9", "0.10.0"), ("1.0.0-rc.1", "1.0.0"), ("1.0.0-rc.9", "1.0.0-rc.10"), ("1.0.0", "1.0.1-rc.1")]
        {
            assert!(order(older) < order(newer), "{older} {newer}");
        }
    }

    #[test]
    fn the_way_of_installation_is_seen_in_the_place_of_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ensemble");
        for (path, way) in [
            ("/usr/lib/node_modules/@x/ensemble-linux-x64/bin/ensemble", Way::Npm),
            ("/opt/homebrew/Cellar/ensemble/1.2.3/bin/ensemble", Way::Homebrew),
            (program.to_str().unwrap(), Way::Other),
        ] {
            assert_eq!(Way::of(Path::new(path)), way, "{path}");
        }
        for (mark, way) in [("install.sh\n", Way::Script(folder.path().to_owned())), ("image\n", Way::Image)] {
            fs::write(folder.path().join(MARK), mark).unwrap();
            assert_eq!(Way::of(&program), way);
        }
        let how = Way::Other.how("1.2.3", "https://x.example", &program);
        assert!(how.contains("https://x.example/download/v1.2.3/ensemble-1.2.3-") && how.contains(".tar.gz"), "{how}");
    }

    #[test]
    fn the_script_gets_nothing_that_changes_what_is_checked() {
        let all = [
            ("PATH", ".:/usr/bin::bin:/bin:"),
            ("HOME", "/home/a"),
            ("HTTPS_PROXY", "http://p"),
            ("no_proxy", "x"),
            ("SIGSTORE_ROOT_FILE", "/x"),
            ("LD_PRELOAD", "/x"),
            ("ENV", "/x"),
        ];
        let kept = kept(all.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let kept: Vec<(&str, &str)> = kept.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [("HOME", "/home/a"), ("HTTPS_PROXY", "http://p"), ("PATH", "/usr/bin:/bin"), ("no_proxy", "x")];
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_script_has_the_names_of_this_build() {
        let script = script();
        assert!(!script.contains("@RELEASES@") && !script.contains("@SIGNER@"));
        assert!(script.contains(&format!("releases='{}'", name("releases").unwrap_or_default())));
        assert!(script.contains(MARK), "the script leaves another mark");
    }
}
