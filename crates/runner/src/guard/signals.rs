//! Signals to the guard itself. Each of them ends the attempt.

use nix::sys::signal::{SigSet, Signal};

/// Blocks the signals in this thread and its future threads, and returns them for one thread to wait for.
pub(super) fn block() -> nix::Result<SigSet> {
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        ending.add(signal);
    }
    ending.thread_block()?;
    Ok(ending)
}
