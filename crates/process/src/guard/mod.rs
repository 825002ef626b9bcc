//! The guard: a small process between the runner and a provider's program. If the runner dies, the guard ends the
//! program.
//!
//! A program that serves many sessions may outlive its runner for a while: the runner says so, and another one takes it over.
//!
//! It runs in its own session, so that signals to the runner do not reach the attempt. It ends every process of the
//! attempt (TERM, a grace period, KILL) when the runner orders it, when the runner's end of their socket closes, or
//! when the program exits. On Linux the guard is a subreaper: processes that daemonise become its children and end too.
//! On other systems it ends the program's process group, and a process that leaves the group escapes.
//!
//! It never has the server's token: the runner starts it with a separate environment.

mod door;
mod orders;
mod signals;
mod stage;
mod tree;
mod watch;

pub(crate) use orders::{CLOSE, Launch, Order, Report, STAGE, STAY, STOP, WRITE};
pub use orders::{Directory, EXIT_STAGE, Limits};
pub use tree::{Found, below};

use crate::program::this_program;

/// The arguments before those of [`guard_main`].
const COMMAND: [&str; 2] = ["runner", "guard"];

/// The command that makes this program a guard.
pub fn default_guard() -> Vec<String> {
    let program = this_program().map_or_else(|_| "ensemble".to_owned(), |path| path.display().to_string());
    std::iter::once(program).chain(COMMAND.map(str::to_owned)).collect()
}

/// Is the guard if the arguments of this process say so, and returns its exit code. Programs ask this before anything else: a guard
/// lives as long as its agent, and what a program has set up until then would stay in memory.
pub fn run_if_guard() -> Option<u8> {
    let mut args = std::env::args_os().skip(1);
    for word in COMMAND {
        args.next().filter(|arg| arg == word)?;
    }
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    Some(u8::try_from(guard_main(&args)).unwrap_or(1))
}

/// `args` are the arguments after `guard`. Returns the exit code.
fn guard_main(args: &[String]) -> i32 {
    match args {
        [] => watch::watch(),
        [stage] if stage == orders::STAGE => stage::become_program(),
        _ => {
            eprintln!("the runner starts the guard itself; the guard takes no arguments");
            orders::EXIT_USAGE
        }
    }
}
