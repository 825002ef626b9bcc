//! What may be typed: the commands, and the options that all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    cancel, completions, login, logout, machine, output, retry, run, runner, runs, session, share, show, up, whoami,
};

/// Work together with coding agents on your own machines.
#[derive(Debug, Parser)]
#[command(name = "ensemble", version, propagate_version = true, after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Start with `ensemble up` in one terminal, then `ensemble login` in another.

Exit codes: 0 done, 1 failed (also: the run failed), 2 not a command, 3 the run was cancelled, 130 interrupted.";

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The server's address [default: that of the last login, else http://127.0.0.1:8080]
    #[arg(long, global = true, env = "ENSEMBLE_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Where the account key and the settings are kept
    #[arg(long, global = true, env = "ENSEMBLE_HOME", value_name = "DIR", hide = true)]
    pub(crate) home: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything on this machine: all services, and a runner
    Up(up::Up),
    /// Sign in; makes an account key the first time
    Login(login::Login),
    /// Forget the server and its token; keeps the account key
    Logout(logout::Logout),
    /// Show who you are, and the fingerprint of your key
    Whoami(whoami::Whoami),
    /// Register, list and delete your machines
    #[command(subcommand, visible_alias = "machines")]
    Machine(machine::Machine),
    /// Run tasks on this machine as they come
    Runner(runner::Runner),
    /// Submit a plan and watch it
    Run(run::Run),
    /// List your runs
    Runs(runs::Runs),
    /// Show a run and its tasks
    Show(show::Show),
    /// Print what a task has written
    #[command(visible_alias = "logs")]
    Output(output::Output),
    /// Cancel a run
    Cancel(cancel::Cancel),
    /// Try again what failed or was cancelled in a run
    Retry(retry::Retry),
    /// Create, read and write encrypted sessions
    #[command(subcommand, visible_alias = "sessions")]
    Session(Box<session::Session>),
    /// Share sessions with users, or by a public link
    #[command(subcommand)]
    Share(share::Share),
    /// Print completions for your shell
    Completions(completions::Completions),
}
