//! Text on standard input in place of an argument.

use std::io;

use ensemble_plan::{LONGEST_PROMPT, read_text};

use crate::failure::{Failure, Result};

/// The prompt on standard input.
pub(crate) fn prompt() -> Result<String> {
    text(LONGEST_PROMPT)
}

/// The same for what goes into a session as one message of at most `limit` bytes.
pub(crate) fn text(limit: u64) -> Result<String> {
    read_text(io::stdin(), limit).map_err(|error| Failure::message(format!("Cannot read the prompt: {error}.")))
}
