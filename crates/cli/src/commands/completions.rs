//! `ensemble completions`: prints a completion script for a shell.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::DONE;
use crate::arguments::Arguments;
use crate::failure::Result;

/// For bash: `ensemble completions bash > ~/.local/share/bash-completion/completions/ensemble`
#[derive(Debug, Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "ensemble", &mut script);
        io::stdout().write_all(&script)?;
        Ok(DONE)
    }
}
