//! `ensemble completions`: prints a completion script for a shell.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use super::DONE;
use crate::failure::{Failure, Result};

/// For bash: `ensemble completions bash > ~/.local/share/bash-completion/completions/ensemble`. The script asks `ensemble`
/// itself, so it completes the refs of your runs, sessions and machines as well.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Elvish => "elvish",
            Self::Fish => "fish",
            Self::Powershell => "powershell",
            Self::Zsh => "zsh",
        }
    }
}

impl Completions {
    pub(crate) fn run(self) -> Result {
        let name = self.shell.name();
        let shells = Shells::builtins();
        let shell = shells.completer(name).ok_or_else(|| Failure::message(format!("{name} cannot be completed.")))?;
        let mut script = Vec::new();
        shell.write_registration("COMPLETE", "ensemble", "ensemble", "ensemble", &mut script)?;
        io::stdout().write_all(&script)?;
        Ok(DONE)
    }
}
