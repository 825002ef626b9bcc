//! `ensemble runner install` and `uninstall`, `ensemble up --install` and `--uninstall`: a service that starts with the machine.
//!
//! Linux has a unit of systemd's user manager (systemd.service(5)), macOS a launch agent (launchd.plist(5)). What will be
//! written and run is printed first.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::DONE;
use super::runner::Options;
use crate::confirm;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::print;

/// How long a service may take to end after its running tasks were handed back.
const AFTER_DRAIN: Duration = Duration::from_secs(30);
const RUNNER: &str = "runner";

/// Start the runner whenever this machine starts, as a service of yours. Prints what it would write and run, and asks first
#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    options: Options,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Stop the service of `ensemble runner install` and remove it
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// The service manager of this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Systemd,
    Launchd,
}

/// The service: the program with its arguments, and what it needs.
pub(crate) struct Service {
    /// A word.
    name: &'static str,
    arguments: Vec<String>,
    /// Where the programs of the providers are found.
    path: String,
    stop_after: Duration,
    /// Whether it starts with the machine, before anyone signs in to it.
    lingers: bool,
}

type Commands = Vec<Vec<String>>;

impl Install {
    pub(crate) async fn run(self, context: &Context) -> Result {
        // The service cannot ask, so what it needs is checked here.
        let config = self.options.for_check(context)?;
        if context.linked_machine()?.is_none() {
            context.me().await?;
        }
        let mut arguments = vec!["--server".to_owned(), context.server()?.0, "runner".to_owned()];
        arguments.extend(self.options.as_arguments()?);
        let service = Service::new(context, RUNNER, arguments, config.timing.drain_grace)?;
        if service.install(context, self.yes)? && Manager::here() == Manager::Systemd {
            print::note("To start it with the machine, before you sign in: `loginctl enable-linger`.");
        }
        Ok(DONE)
    }
}

impl Uninstall {
    pub(crate) fn run(self, context: &Context) -> Result {
        uninstall(context, RUNNER, self.yes)
    }
}

impl Service {
    /// The service of this program with these arguments.
    pub(crate) fn new(context: &Context, name: &'static str, more: Vec<String>, grace: Duration) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut arguments = vec![text(&program)?, "--home".to_owned(), text(&absolute(context.home.path())?)?];
        arguments.extend(more);
        let path = environment().remove("PATH").unwrap_or_default();
        Ok(Self { name, arguments, path, stop_after: grace + AFTER_DRAIN, lingers: false })
    }

    #[cfg(feature = "up")]
    pub(crate) fn lingering(self) -> Self {
        Self { lingers: true, ..self }
    }

    #[cfg(feature = "up")]
    pub(crate) fn is_installed(name: &str) -> Result<bool> {
        Ok(Manager::here().file(name)?.exists())
    }

    /// Shows what it would write and run, and does it if the person agrees. Whether it was done, and said so to the person.
    pub(crate) fn install(&self, context: &Context, yes: bool) -> Result<bool> {
        let manager = Manager::here();
        let (file, content) = (manager.file(self.name)?, manager.definition(self)?);
        let commands = manager.start(self, &file)?;
        if !context.json {
            print::line(format!("# {}\n{content}\n# then", file.display()))?;
            commands.iter().try_for_each(|command| print::line(command.join(" ")))?;
        }
        let agreed = yes || confirm::change("Write this file and start the service")?;
        if agreed {
            if let Some(directory) = file.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::write(&file, &content)?;
            run(&commands)?;
        }
        if context.json {
            let report = json!({ "file": file, "content": content, "commands": commands, "installed": agreed });
            print::json(&report, false)?;
        } else if agreed {
            let when = if self.lingers { "this machine starts" } else { "you sign in to this machine" };
            print::note(format!("The service is running, and starts when {when}."));
            if manager == Manager::Systemd {
                print::note(format!("Its log: `journalctl --user -u {} -f`.", unit_name(self.name)));
            }
        } else if !std::io::stdin().is_terminal() {
            return Err(Failure::NotAgreed("Nothing was written. Write and start it with --yes.".to_owned()));
        }
        Ok(agreed && !context.json)
    }
}

/// Stops a service and removes it.
pub(crate) fn uninstall(context: &Context, name: &str, yes: bool) -> Result {
    let manager = Manager::here();
    let file = manager.file(name)?;
    if !file.exists() {
        return Err(Failure::message(format!("{} does not exist: nothing is installed.", file.display())));
    }
    let commands = manager.stop(name, &file)?;
    if !context.json {
        commands.iter().try_for_each(|command| print::line(command.join(" ")))?;
        print::line(format!("rm {}", file.display()))?;
    }
    if !(yes || confirm::change("Stop the service and remove this file")?) {
        print::note("Nothing was removed. Remove it with --yes.");
        return Ok(ExitCode::FAILURE);
    }
    run(&commands)?;
    fs::remove_file(&file)?;
    if context.json {
        print::json(&json!({ "file": file, "commands": commands, "installed": false }), false)?;
    }
    Ok(DONE)
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

    fn file(self, name: &str) -> Result<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").ok_or_else(|| Failure::message("HOME is not set."));
        Ok(match self {
            Self::Systemd => {
                let config =
                    variable("XDG_CONFIG_HOME").map_or_else(|| Ok(home()?.join(".config")), Ok::<_, Failure>)?;
                config.join("systemd/user").join(unit_name(name))
            }
            Self::Launchd => home()?.join("Library/LaunchAgents").join(format!("{}.plist", label(name))),
        })
    }

    fn definition(self, service: &Service) -> Result<String> {
        let all = service.arguments.iter().chain([&service.path]);
        if let Some(bad) = all.clone().find(|text| text.chars().any(char::is_control)) {
            return Err(Failure::message(format!("{bad:?} has a control character, which a service cannot have.")));
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
    format!("gui/{}", rustix::process::getuid().as_raw())
}

/// Runs the commands one after the other.
fn run(commands: &Commands) -> Result<()> {
    for command in commands {
        let [program, arguments @ ..] = command.as_slice() else { continue };
        let typed = command.join(" ");
        let status = Command::new(program)
            .args(arguments)
            .status()
            .map_err(|error| Failure::message(format!("`{typed}` cannot be run: {error}.")))?;
        if !status.success() {
            return Err(Failure::message(format!("`{typed}` failed ({status}).")));
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
        .ok_or_else(|| Failure::message(format!("{} is not valid UTF-8, so a service cannot have it.", path.display())))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        let arguments = ["/opt/a b/ensemble", "--home", "/h/50%/$x", "runner", "--root", "/a\"<&>\\"];
        let stop_after = Duration::from_secs(90);
        Service { name: RUNNER, arguments: words(&arguments), path: "/bin:/x y".to_owned(), stop_after, lingers: false }
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
