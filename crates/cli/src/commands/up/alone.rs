//! `ensemble up --no-account`: a server alone.

use ensemble_all_in_one::Stack;

use super::signals::Signals;
use crate::commands::DONE;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// A server without an account of this program, until a signal comes.
pub(super) async fn alone(context: &Context, stack: Stack, signals: &mut Signals) -> Result {
    let server = stack.url();
    if context.json {
        let printed = serde_json::json!({
            "url": server, "docs": format!("{server}/docs"), "userId": null, "forOthers": stack.for_others(),
            "forProxy": stack.for_proxy(), "defaultServer": null,
        });
        print::json(&printed, true)?;
    } else {
        print::line(format!("Ensemble is up at {server}, without an account of its own."))?;
    }
    signals.next().await;
    stop(stack, signals).await
}

pub(super) async fn stop(stack: Stack, signals: &mut Signals) -> Result {
    print::note("Stopping. Press Ctrl-C again to stop at once.");
    tokio::select! {
        _ = stack.stop() => Ok(DONE),
        () = signals.next() => Err(Failure::message("Stopped before everything was drained.")),
    }
}
