//! `ensemble cancel`: cancels a run.

use clap::Args;
use ensemble_types::runs::RunStatus;

use super::DONE;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::named::Which;
use crate::print;
use crate::watching::named;

/// Cancels a run: queued tasks at once, running tasks within seconds.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The reason; stored with the run
    #[arg(long)]
    reason: Option<String>,
}

impl Cancel {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.run.find(&me).await?;
        let run = me.client.cancel_run(id, self.reason.as_deref()).await?;
        if context.json {
            print::json(&named(&Machines::if_available(&me).await, &run), false)?;
        } else {
            print::line(format!("Run {}: {}.", run.reference, run.status.as_str()))?;
        }
        if matches!(run.status, RunStatus::Completed | RunStatus::Failed) {
            return Err(Failure::message("The run had ended before, so nothing was cancelled."));
        }
        Ok(DONE)
    }
}
