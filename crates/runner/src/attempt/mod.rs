//! One attempt, from the lease to the server's receipt.
//!
//! It is put down on disk, made, its report put down, and delivered. Meanwhile its heart beats, and what it says is
//! sent as it comes. Only a lost lease ends this early: then the program is ended first, and nothing is reported.

mod deliver;
mod heart;
mod make;
mod process;
mod pump;

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_types::leases::{Lease, LeaseFinish};
use ensemble_types::text::Text;
use tokio::sync::OwnedSemaphorePermit;

use crate::config::Config;
use crate::disk::on_disk;
use crate::drain::Drain;
use crate::provider::Outcome;
use crate::server::Server;
use crate::spool::{OutputBounds, OutputSpool, Record, Spool};
use crate::strays;
use crate::wake::Woken;

use heart::Heart;

/// What every attempt of a runner needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) server: Arc<dyn Server>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) drain: Drain,
    pub(crate) woken: Woken,
}

impl Context {
    fn output(&self, record: &Record) -> std::io::Result<Arc<OutputSpool>> {
        let bounds = OutputBounds { in_all: self.config.max_output_bytes, waiting: self.config.max_unsent_bytes };
        OutputSpool::open(record.path(), bounds)
    }
}

/// Makes the attempt and delivers its report. The permit is given back when no process of it is left.
pub(crate) async fn take(
    context: Context,
    lease: Lease,
    program: Result<PathBuf, String>,
    permit: OwnedSemaphorePermit,
) {
    let heart = Heart::start(&context, (&lease).into());
    let (begins, lease) = (context.clone(), Arc::new(lease));
    let wanted = lease.clone();
    let begun = on_disk(move || match begins.spool.begin(&wanted)? {
        Some(record) => begins.output(&record).map(|output| Some((record, output))),
        None => Ok(None),
    });
    let (record, output) = match begun.await {
        Ok(Some(begun)) => begun,
        // The same lease was handed out twice; the first is being dealt with.
        Ok(None) => return,
        Err(error) => {
            tracing::error!(lease.id = %lease.id, "Cannot put an attempt down on disk, so it is not made: {error}");
            let outcome = Outcome::not_made("RUNNER_DISK", format!("The runner cannot write to its disk: {error}."));
            // Nothing to redeliver from: when this is lost, the lease runs out.
            let _ = context.server.finish(&lease.as_ref().into(), &outcome.report(lease.fence, None)).await;
            return;
        }
    };
    tracing::info!(lease.id = %lease.id, run.id = %lease.run_id, task.id = %lease.task_id, attempt = lease.attempt,
        provider = %lease.provider, "Begins an attempt");
    let sender = deliver::Sender::start(&context, &record, &output);
    let made = make::make(&context, &lease, program, &record, &output, &heart).await;
    output.close();
    let Some(finish) = made else {
        tracing::warn!(lease.id = %lease.id, task.id = %lease.task_id, "Lost the lease; the attempt was ended and is not reported");
        output.abandon();
        drop(permit);
        return discard(record).await;
    };
    tracing::info!(lease.id = %lease.id, task.id = %lease.task_id, status = ?finish.status,
        code = finish.error.as_ref().map_or("", |error| &*error.code), "An attempt has ended");
    put_down(&record, &finish).await;
    drop(permit);
    deliver::deliver(&context, record, finish, sender, heart).await;
}

/// Takes care of what a predecessor left: nothing of it runs any more afterwards, and the server is told.
pub(crate) async fn recover(context: Context, record: Record) {
    let finish = match record.finish() {
        Some(finish) => finish.clone(),
        None => {
            strays::end(record.lease(), context.config.timing.term_grace + context.config.timing.leftover_grace).await;
            let mut finish = Outcome::interrupted().report(record.fence(), None);
            finish.provider_session_id = record.provider_session().and_then(|id| Text::new(id).ok());
            put_down(&record, &finish).await;
            finish
        }
    };
    tracing::info!(lease.id = %record.lease(), task.id = %record.task(), status = ?finish.status,
        "Reports an attempt of an earlier runner");
    let (reads, left) = (context.clone(), record.clone());
    let output = match on_disk(move || reads.output(&left)).await {
        Ok(output) => output,
        Err(error) => {
            tracing::error!(lease.id = %record.lease(), "Cannot read the output of an earlier attempt: {error}");
            return;
        }
    };
    output.close();
    let heart = Heart::start(&context, record.held());
    let sender = deliver::Sender::start(&context, &record, &output);
    deliver::deliver(&context, record, finish, sender, heart).await;
}

async fn put_down(record: &Record, finish: &LeaseFinish) {
    let (kept, report) = (record.clone(), finish.clone());
    if let Err(error) = on_disk(move || kept.put_finish(&report)).await {
        tracing::error!(lease.id = %record.lease(), "Cannot put a report down on disk; it is lost if this runner stops now: {error}");
    }
}

async fn discard(record: Record) {
    let lease = record.lease();
    if let Err(error) = on_disk(move || record.remove()).await {
        tracing::error!(lease.id = %lease, "Cannot remove an attempt from disk: {error}");
    }
}
