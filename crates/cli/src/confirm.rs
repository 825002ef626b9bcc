//! Asks before something is deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Result};

/// Asks whether to delete this.
///
/// # Errors
/// The user does not want to, or there is no terminal to ask at.
pub(crate) fn deletion(what: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Failure::message("Deleting cannot be undone. Confirm it with --yes."));
    }
    write!(io::stderr(), "Delete {what}? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::message("Nothing was deleted.")) }
}
