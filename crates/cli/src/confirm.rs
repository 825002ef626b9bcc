//! Asks before something is deleted, or changed on this machine.

use std::io::{self, BufRead, IsTerminal};

use rustix::termios::{QueueSelector, tcflush};

use crate::failure::{Failure, Result};
use crate::print;

/// Asks whether to delete this.
///
/// # Errors
/// The user does not want to, or there is no terminal to ask at.
pub(crate) fn deletion(what: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Failure::message("Deleting cannot be undone. Confirm it with --yes."));
    }
    print::ask(format!("Delete {what}? [y/N]"))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if is_yes(&answer) { Ok(()) } else { Err(Failure::message("Nothing was deleted.")) }
}

/// Whether there is a terminal to ask at.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks whether to do this. No, where there is no terminal to ask at.
pub(crate) fn change(what: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    print::ask(format!("{what}? [y/N]"))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// Forgets what was typed before the question was there.
pub(crate) fn forget_typed() {
    let _no_terminal = tcflush(io::stdin(), QueueSelector::IFlush);
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes")
}
