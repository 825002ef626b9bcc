//! `ensemble retry`: starts new attempts for tasks that did not complete.

use clap::Args;
use ensemble_types::problem::Code;

use super::DONE;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::named::Which;
use crate::print;
use crate::watching::named;
use crate::watching::{AllowDenials, Asked, watch};

/// Retries the failed and cancelled tasks of a run. Completed tasks keep their results. Tasks that wait because a provider's limit is
/// reached are tried at once.
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// Do not wait for the run to end
    #[arg(long, short)]
    detach: bool,
    #[command(flatten)]
    allow: AllowDenials,
}

impl Retry {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.run.find(&me).await?;
        let run = me.client.retry_run(id).await.map_err(|error| {
            if error.is(Code::Conflict) {
                Failure::message("There is nothing to try again: no task of this run failed, was cancelled, or waits for a provider.")
            } else {
                error.into()
            }
        })?;
        me.use_run(id);
        if !self.detach {
            return watch(context, &me, id, Asked::default(), self.allow).await;
        }
        if context.json {
            print::json(&named(&Machines::if_available(&me).await, &run), false)?;
        } else {
            print::line(format!("Run {}: {}.", run.reference, run.status.as_str()))?;
        }
        Ok(DONE)
    }
}
