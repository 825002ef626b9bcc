//! The runner of `ensemble up`.

use std::time::Duration;

use ensemble_host::Drain;
use ensemble_runner::run_until;
use tokio::task::JoinHandle;

use super::signals::Signals;
use crate::commands::runner::chain;
use crate::failure::{Failure, Result};
use crate::print;

/// A runner without tasks and turns ends within this time, and nothing is said.
const AT_REST: Duration = Duration::from_secs(1);
/// How long handing back may take: TERM, KILL, and the last reports.
const HAND_BACK: Duration = Duration::from_secs(20);

/// A runner and the handle that stops it.
pub(super) type Running = (Drain, JoinHandle<()>);

pub(super) fn start_runner(mut config: ensemble_runner::Config) -> Running {
    // The person who stops it waits at the terminal, for tasks and for turns of sessions alike.
    config.timing.turn_grace = config.timing.drain_grace;
    let drain = Drain::default();
    let stop_handle = drain.clone();
    let task = tokio::spawn(async move {
        if let Err(error) = run_until(config, stop_handle).await {
            let advice = match error {
                ensemble_runner::RunError::NotAccepted => " Start `ensemble up` again to register this machine again.",
                _ => " The server continues without it. `ensemble doctor` says what is missing.",
            };
            print::later(format!("The runner on this machine stopped: {}.{advice}", chain(&error)));
        }
    });
    (drain, task)
}

/// Ends the runner: its tasks may end, or are handed back after a minute or a second signal. The server stays until
/// then, because it has to take their reports.
pub(super) async fn drain((drain, mut task): Running, signals: &mut Signals) -> Result<()> {
    drain.begin();
    if tokio::time::timeout(AT_REST, &mut task).await.is_ok() {
        return Ok(());
    }
    print::note(
        "Stopping when the running tasks and the turns of live sessions have ended, within two minutes. A turn that waits for your answer is \
         interrupted now, unless its agent keeps the request (codex). Press Ctrl-C again to interrupt all of them; tasks resume with \
         the next start, sessions with the next prompt.",
    );
    tokio::select! {
        _ = &mut task => return Ok(()),
        () = signals.next() => drain.hurry(),
    }
    print::note("Interrupting the running tasks.");
    tokio::select! {
        ended = tokio::time::timeout(HAND_BACK, task) => {
            if ended.is_err() {
                print::note("The runner did not stop in time.");
            }
            Ok(())
        }
        () = signals.next() => Err(Failure::message("Stopped before everything was drained.")),
    }
}
