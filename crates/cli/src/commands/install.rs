//! `ensemble runner install` and `uninstall`, `ensemble up --install` and `--uninstall`: a service that starts with the machine. What will be
//! written and run is printed first.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ensemble_computer::service::{Removal, Service};
use serde_json::json;

use super::DONE;
use super::runner::Options;
use crate::confirm;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::print;

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

impl Install {
    pub(crate) async fn run(self, context: &Context) -> Result {
        // The service cannot ask, so what it needs is checked here.
        let config = self.options.for_check(context)?;
        if context.linked_machine()?.is_none() {
            context.me().await?;
        }
        let mut arguments = vec!["--server".to_owned(), context.server()?.0, "runner".to_owned()];
        arguments.extend(self.options.as_arguments()?);
        let service = service(context, RUNNER, arguments, config.timing.drain_grace)?;
        if install(&service, context, self.yes)? && cfg!(not(target_os = "macos")) {
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

/// The service of this program with these arguments.
pub(crate) fn service(context: &Context, name: &'static str, more: Vec<String>, grace: Duration) -> Result<Service> {
    let program = std::env::current_exe()?;
    Ok(Service::new(name, (&program, context.home.path()), more, grace, &environment())?)
}

/// Shows what it would write and run, and does it if the person agrees. Whether it was done, and said so to the person.
pub(crate) fn install(service: &Service, context: &Context, yes: bool) -> Result<bool> {
    let installation = service.installation(&environment())?;
    let (file, content, commands) = (&installation.file, &installation.content, &installation.commands);
    if !context.json {
        print::line(format!("# {}\n{content}\n# then", file.display()))?;
        commands.iter().try_for_each(|command| print::line(command.join(" ")))?;
    }
    let agreed = yes || confirm::change("Write this file and start the service")?;
    if agreed {
        installation.carry_out()?;
    }
    if context.json {
        let report = json!({ "file": file, "content": content, "commands": commands, "installed": agreed });
        print::json(&report, false)?;
    } else if agreed {
        let when = if service.lingers { "this machine starts" } else { "you sign in to this machine" };
        print::note(format!("The service is running, and starts when {when}."));
        if let Some(log) = &installation.log {
            print::note(format!("Its log: `{log}`."));
        }
    } else if !std::io::stdin().is_terminal() {
        return Err(Failure::NotAgreed("Nothing was written. Write and start it with --yes.".to_owned()));
    }
    Ok(agreed && !context.json)
}

/// Stops a service and removes it.
pub(crate) fn uninstall(context: &Context, name: &str, yes: bool) -> Result {
    let removal = Removal::of(name, &environment())?;
    let (file, commands) = (&removal.file, &removal.commands);
    if !context.json {
        commands.iter().try_for_each(|command| print::line(command.join(" ")))?;
        print::line(format!("rm {}", file.display()))?;
    }
    if !(yes || confirm::change("Stop the service and remove this file")?) {
        print::note("Nothing was removed. Remove it with --yes.");
        return Ok(ExitCode::FAILURE);
    }
    removal.carry_out()?;
    if context.json {
        print::json(&json!({ "file": file, "commands": commands, "installed": false }), false)?;
    }
    Ok(DONE)
}
