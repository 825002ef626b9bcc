//! The guard: a small parent that stands between the runner and a provider's program, and outlives the runner by
//! exactly as long as it takes to end that program.
//!
//! It runs in a session of its own, so that no signal meant for the runner reaches the attempt. It ends everything
//! the attempt started (TERM, a grace, KILL) when the runner says so, when the runner's end of their socket closes,
//! or when the program itself has ended. On Linux it is a subreaper: what daemonises under it becomes its child and
//! ends too. Elsewhere it ends the program's process group; a process that leaves the group escapes.
//!
//! It never sees the server's token: the runner starts it with an empty environment.

mod orders;
mod signals;
mod stage;
mod tree;
mod watch;

pub use orders::Limits;
pub(crate) use orders::{Directory, EXIT_STAGE, Launch, Order, Report, STAGE, STOP};

/// The program behind `ensemble runner guard`. `args` are the words after `guard`; returns the exit code.
pub fn guard_main(args: &[String]) -> i32 {
    match args {
        [] => watch::watch(),
        [stage] if stage == orders::STAGE => stage::become_program(),
        _ => {
            eprintln!("the guard is started by the runner, and takes no arguments");
            orders::EXIT_USAGE
        }
    }
}
