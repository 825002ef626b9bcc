//! A service of this user that starts with the computer.
//!
//! Linux has a unit of systemd's user manager (systemd.service(5)), macOS a launch agent (launchd.plist(5)). What will be written and run
//! is known before, so that a person can agree to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::unistd::getuid;

use crate::Environment;
use crate::error::{Error, Result};

/// How long a service may take to end after its running tasks were handed back.
const AFTER_DRAIN: Duration = Duration::from_secs(30);

/// The service: the program with its arguments, and what it needs.
pub struct Service {
    /// A word.
    name: &'static str,
    arguments: Vec<String>,
    /// Where the programs of the providers are found.
    path: String,
    stop_after: Duration,
    /// Whether it starts with the machine, before anyone signs in to it.
    pub lingers: bool,
}

/// What makes a service, and starts it.
pub struct Installation {
    pub file: PathBuf,
    pub content: String,
    pub commands: Commands,
    /// What shows its log, where this system has one.
    pub log: Option<String>,
}

/// What ends a service, and removes it.
pub struct Removal {
    pub file: PathBuf,
    pub commands: Commands,
}

/// Commands with their arguments.
pub type Commands = Vec<Vec<String>>;

/// The service manager of this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Systemd,
    Launchd,
}

impl Service {
    /// The service of this program with these arguments. `grace`: for its running tasks.
    pub fn new(
        name: &'static str,
        (program, home): (&Path, &Path),
        more: Vec<String>,
        grace: Duration,
        environment: &Environment,
    ) -> Result<Self> {
        let mut arguments = vec![text(program)?, "--home".to_owned(), text(&std::path::absolute(home)?)?];
        arguments.extend(more);
        let path = environment.get("PATH").cloned().unwrap_or_default();
        Ok(Self { name, arguments, path, stop_after: grace + AFTER_DRAIN, lingers: false })
    }

    pub fn installation(&self, environment: &Environment) -> Result<Installation> {
        let manager = Manager::here();
        let file = manager.file(self.name, environment)?;
        let log = (manager == Manager::Systemd).then(|| format!("journalctl --user -u {} -f", unit_name(self.name)));
        Ok(Installation { content: manager.definition(self)?, commands: manager.start(self, &file)?, log, file })
    }
}

impl Installation {
    pub fn carry_out(&self) -> Result<()> {
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&self.file, &self.content)?;
        run(&self.commands)
    }
}

impl Removal {
    pub fn of(name: &str, environment: &Environment) -> Result<Self> {
        let manager = Manager::here();
        let file = manager.file(name, environment)?;
        if !file.exists() {
            return Err(Error::sentence(format!("{} does not exist: nothing is installed.", file.display())));
        }
        Ok(Self { commands: manager.stop(name, &file)?, file })
    }

    pub fn carry_out(&self) -> Result<()> {
        run(&self.commands)?;
        Ok(fs::remove_file(&self.file)?)
    }
}

/// Whether a service with this name is installed.
pub fn is_installed(name: &str, environment: &Environment) -> Result<bool> {
    Ok(Manager::here().file(name, environment)?.exists())
}

fn unit_name(name: &str) -> String {
    format!("ensemble-{name}.service")
}

fn label(name: &str) -> String {
    format!("dev.ensemble.{name}")
}

impl Manager {
    fn here() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }

    fn file(self, name: &str, environment: &Environment) -> Result<PathBuf> {
        let variable = |name| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").ok_or_else(|| Error::sentence("HOME is not set."));
        Ok(match self {
            Self::Systemd => {
                let config = variable("XDG_CONFIG_HOME").map_or_else(|| Ok(home()?.join(".config")), Ok::<_, Error>)?;
                config.join("systemd/user").join(unit_name(name))
            }
            Self::Launchd => home()?.join("Library/LaunchAgents").join(format!("{}.plist", label(name))),
        })
    }

    fn definition(self, service: &Service) -> Result<String> {
        let all = service.arguments.iter().chain([&service.path]);
        if let Some(bad) = all.clone().find(|text| text.chars().any(char::is_control)) {
            return Err(Error::sentence(format!("{bad:?} has a control character, which a service cannot have.")));
        }
        Ok(match self {
            Self::Systemd => unit(service),
            Self::Launchd => plist(service),
        })
    }

    fn start(self, service: &Service, file: &Path) -> Result<Commands> {
        let unit = unit_name(service.name);
        let linger = words(&["loginctl", "enable-linger"]);
        Ok(match self {
            Self::Systemd => [
                words(&["systemctl", "--user", "daemon-reload"]),
                words(&["systemctl", "--user", "enable", &unit]),
                words(&["systemctl", "--user", "restart", &unit]),
            ]
            .into_iter()
            .chain(service.lingers.then_some(linger))
            .collect(),
            Self::Launchd => vec![words(&["launchctl", "bootstrap", &domain(), &text(file)?])],
        })
    }

    fn stop(self, name: &str, file: &Path) -> Result<Commands> {
        Ok(match self {
            Self::Systemd => vec![words(&["systemctl", "--user", "disable", "--now", &unit_name(name)])],
            Self::Launchd => vec![words(&["launchctl", "bootout", &domain(), &text(file)?])],
        })
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The launchd domain of this user.
fn domain() -> String {
    format!("gui/{}", getuid())
}

/// Runs the commands one after the other.
fn run(commands: &Commands) -> Result<()> {
    for command in commands {
        let [program, arguments @ ..] = command.as_slice() else { continue };
        let typed = command.join(" ");
        let status = Command::new(program)
            .args(arguments)
            .status()
            .map_err(|error| Error::sentence(format!("`{typed}` cannot be run: {error}.")))?;
        if !status.success() {
            return Err(Error::sentence(format!("`{typed}` failed ({status}).")));
        }
    }
    Ok(())
}

/// Only the program itself gets signals (systemd.kill(5)): the guards of its agents end these themselves, and what may continue until the next
/// start stays.
fn unit(service: &Service) -> String {
    let arguments: Vec<String> = service.arguments.iter().map(|argument| quoted(argument).replace('$', "$$")).collect();
    format!(
        "[Unit]\nDescription=Ensemble {}\n\n[Service]\nExecStart={}\nEnvironment={}\nRestart=on-failure\nRestartSec=5\n\
         KillMode=process\nTimeoutStopSec={}\n\n[Install]\nWantedBy=default.target\n",
        service.name,
        arguments.join(" "),
        quoted(&format!("PATH={}", service.path)),
        service.stop_after.as_secs(),
    )
}

/// A word of a unit (systemd.syntax(7), "Quoting"; systemd.unit(5), "Specifiers").
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

fn plist(service: &Service) -> String {
    let strings: String =
        service.arguments.iter().map(|argument| format!("    <string>{}</string>\n", escaped(argument))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n<dict>\n  <key>Label</key>\n  <string>{}</string>\n  <key>ProgramArguments</key>\n\
         \x20 <array>\n{strings}  </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    <string>{}</string>\n\
         \x20 </dict>\n  <key>RunAtLoad</key>\n  <true/>\n  <key>KeepAlive</key>\n  <dict>\n\
         \x20   <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  <key>ExitTimeOut</key>\n\
         \x20 <integer>{}</integer>\n</dict>\n</plist>\n",
        label(service.name),
        escaped(&service.path),
        service.stop_after.as_secs(),
    )
}

/// Text of an XML document (XML 1.0, section 2.4).
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::sentence(format!("{} is not valid UTF-8, so a service cannot have it.", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        let arguments = ["/opt/a b/ensemble", "--home", "/h/50%/$x", "runner", "--root", "/a\"<&>\\"];
        let stop_after = Duration::from_secs(90);
        Service {
            name: "runner",
            arguments: words(&arguments),
            path: "/bin:/x y".to_owned(),
            stop_after,
            lingers: false,
        }
    }

    #[test]
    fn a_unit_quotes_every_word() {
        let unit = Manager::Systemd.definition(&service()).unwrap();
        let expected = r#"ExecStart="/opt/a b/ensemble" "--home" "/h/50%%/$$x" "runner" "--root" "/a\"<&>\\""#;
        assert!(unit.lines().any(|line| line == expected), "{unit}");
        assert!(
            unit.contains("\nEnvironment=\"PATH=/bin:/x y\"\n") && unit.contains("\nTimeoutStopSec=90\n"),
            "{unit}"
        );
    }

    #[test]
    fn a_launch_agent_escapes_every_text() {
        let plist = Manager::Launchd.definition(&service()).unwrap();
        assert!(plist.contains("    <string>/a\"&lt;&amp;&gt;\\</string>\n"), "{plist}");
        assert!(plist.contains("  <array>\n    <string>/opt/a b/ensemble</string>\n"), "{plist}");
    }

    #[test]
    fn a_control_character_cannot_begin_a_line_of_a_definition() {
        let mut service = service();
        service.path = "/bin\nExecStartPre=/bin/false".to_owned();
        for manager in [Manager::Systemd, Manager::Launchd] {
            assert!(manager.definition(&service).is_err(), "{manager:?}");
        }
    }
}
