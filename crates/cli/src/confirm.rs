//! Asks before something is deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Result};

/// Asks the question and returns whether the answer is yes. Without a terminal nobody can be asked, so it fails.
pub(crate) fn confirmed(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Failure::message("Deleting cannot be undone. Confirm it with --yes."));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
