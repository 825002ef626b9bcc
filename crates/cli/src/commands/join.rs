//! What a new device does to be added to an account: `ensemble login --link` for a person, `ensemble runner link` for a machine.

use std::io::{self, BufRead, IsTerminal};

use ensemble_account::Account;
use ensemble_account::devices::LinkCode;
use ensemble_account::devices::join::{Joined, Joining};
use ensemble_types::devices::DeviceKind;
use ensemble_types::ids::MachineId;
use secrecy::zeroize::Zeroizing;

use crate::context::{Context, anonymous};
use crate::failure::{Failure, Result};
use crate::print;

/// Makes this computer a device of an account.
pub(crate) async fn as_device(context: &Context) -> Result<Account> {
    let joining = Joining::begin(&context.home, DeviceKind::Cli).await?;
    Ok(join(&joining).await?.into_account().await?)
}

/// Makes this computer a machine of an account that it does not open.
pub(crate) async fn as_machine(context: &Context) -> Result<(String, MachineId)> {
    let joining = Joining::begin(&context.home, DeviceKind::Runner).await?;
    Ok(join(&joining).await?.into_machine()?)
}

/// Asks to be added, and waits for the answer. Resumes where a command was killed.
async fn join(joining: &Joining) -> Result<Joined<'_>> {
    let interrupted = match joining.interrupted() {
        Some(code) => joining.resume(anonymous(code.base)?).await?,
        None => None,
    };
    let asked = if let Some(asked) = interrupted {
        print::note("Resuming the linking that was interrupted.");
        asked
    } else {
        let code = typed_code()?;
        joining.ask(anonymous(code.base.clone())?, code).await?
    };
    let digits = asked.digits()?;
    let (first, last) = digits.split_at(3);
    print::note(format!("Type these digits on the other device: {first} {last}"));
    Ok(asked.answered().await?)
}

/// A secret is not shown while it is typed, and is never an argument.
pub(crate) fn typed_secret(asked: &str) -> Result<Zeroizing<String>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let mut line = Zeroizing::new(String::new());
        stdin.lock().read_line(&mut line)?;
        return Ok(line);
    }
    print::ask(asked)?;
    let typed = without_echo()?;
    print::note("");
    Ok(typed)
}

fn typed_code() -> Result<LinkCode> {
    let typed = typed_secret(
        "The address that `ensemble link`, or Add a device in the web app, shows (what you type is not shown):",
    )?;
    if typed.trim().is_empty() {
        return Err(Failure::message(
            "No address was typed. A primary device of the account shows it: `ensemble link`, or Settings, Add a device, in the web app.",
        ));
    }
    LinkCode::from_address(&typed).map_err(|_| {
        Failure::message(
            "This is not the address that `ensemble link` shows: https://…/link#v1.… with 22 and 43 characters.",
        )
    })
}

pub(crate) fn without_echo() -> Result<Zeroizing<String>> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = io::stdin();
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(io::Error::from)?;
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before).map_err(io::Error::from)?;
    read?;
    Ok(line)
}
