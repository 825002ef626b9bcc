//! `with-postgres <command> [arguments]`: runs a command with a private PostgreSQL and its URL in `TEST_DATABASE_URL`.
//!
//! A server that `TEST_DATABASE_URL` already names is used instead. `--durable` before the command flushes commits to
//! the disk, for measurements.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use ensemble_testkit::postgres::{Cluster, Durability, TEST_DATABASE_URL};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("with-postgres: {error:#}");
            ExitCode::from(69)
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let durable = arguments.next_if(|argument| argument == "--durable").is_some();
    arguments.next_if(|argument| argument == "--");
    let program = arguments.next().context("name the command to run")?;
    let mut command = Command::new(&program);
    command.args(arguments);
    #[expect(clippy::disallowed_methods, reason = "the variable is this program's whole interface")]
    let given = std::env::var(TEST_DATABASE_URL).is_ok_and(|url| !url.is_empty());
    let cluster = if given {
        None
    } else {
        let cluster = Cluster::start(if durable { Durability::Full } else { Durability::None })?;
        command.env(TEST_DATABASE_URL, cluster.url("postgres"));
        Some(cluster)
    };
    let status = command.status().with_context(|| format!("{} cannot be run", program.display()))?;
    drop(cluster);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
