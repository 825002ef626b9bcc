//! One attempt, from the lease to the delivered report.
//!
//! The attempt is recorded on disk, the program runs, its report is recorded, and the report is delivered. Meanwhile
//! the heartbeat renews the lease, and output is sent as it arrives. Only a lost lease shortens this: the program is
//! stopped and nothing is reported.

mod deliver;
mod enter;
mod execution;
mod heartbeat;
mod held;
mod run_attempt;
mod sealed;
mod session_turn;
mod signed;
mod slash;
mod slot;
mod text;
mod turn;
mod unchecked;

use std::sync::Arc;

use ensemble_host::wake::Woken;
use ensemble_host::{Drain, Settings};
use ensemble_process::disk::on_disk;
use ensemble_process::orphans;
use ensemble_types::leases::{Lease, LeaseFinish};
use ensemble_types::text::Text;
use tokio::sync::{Notify, watch};

use crate::config::Config;
use crate::offers::Offer;
use crate::outcome::Outcome;
use crate::owner::Owner;
use crate::server::Server;
use crate::spool::{OutputBounds, OutputSpool, Record, Spool};
use crate::workplace::{Orders, Workplaces};

use heartbeat::Heartbeat;
pub(crate) use held::Held;
use signed::NotRun;
pub(crate) use signed::{carried_out, signed_order};
pub(crate) use slot::Slot;
pub(crate) use unchecked::Unchecked;

/// What every attempt of a runner needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) server: Arc<dyn Server>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) drain: Drain,
    pub(crate) woken: Woken,
    pub(crate) held: Held,
    pub(crate) workplaces: Workplaces,
    pub(crate) orders: Orders,
    /// The owner of this machine, once its host is ready. Closed when it hosts no sessions.
    pub(crate) owner: watch::Receiver<Option<Arc<Owner>>>,
    /// Notified when an agent has said that it is not signed in.
    pub(crate) signed_out: Arc<Notify>,
    pub(crate) unchecked: Unchecked,
}

impl Context {
    fn output(&self, record: &Record) -> std::io::Result<Arc<OutputSpool>> {
        let bounds = OutputBounds { total: self.config.max_output_bytes, unsent: self.config.max_unsent_bytes };
        OutputSpool::open(record.path(), bounds)
    }
}

/// Runs the attempt and delivers its report. Its slot is free when no process of the attempt is left.
pub(crate) async fn run(context: Context, lease: Lease, offer: Option<Offer>, mut slot: Slot) {
    let heartbeat = Heartbeat::start(&context, (&lease).into());
    let (blocking, lease) = (context.clone(), Arc::new(lease));
    let recorded = lease.clone();
    let started = on_disk(move || match blocking.spool.begin(&recorded)? {
        Some(record) => blocking.output(&record).map(|output| Some((record, output))),
        None => Ok(None),
    });
    let (record, output) = match started.await {
        Ok(Some(started)) => started,
        // The same lease was granted twice, and the first one is in progress.
        Ok(None) => return,
        Err(error) => {
            tracing::error!(lease.id = %lease.id, "Cannot record an attempt on disk, so it is not started: {error}");
            let outcome = Outcome::refused("RUNNER_DISK", format!("The runner cannot write to its disk: {error}."));
            // There is no record to deliver again. If this call fails, the lease expires.
            let _ = context.server.finish(&lease.as_ref().into(), &outcome.report(lease.fence)).await;
            return;
        }
    };
    tracing::info!(lease.id = %lease.id, run.id = %lease.run_id, task.id = %lease.task_id, attempt = lease.attempt,
        provider = %lease.provider, "Starting an attempt");
    let sender = deliver::Sender::start(&context, &record, &output);
    let finish = if lease.sealed.is_some() || lease.session.is_some() {
        sealed::run_sealed(&context, &lease, offer, (&heartbeat, &mut slot)).await
    } else {
        match signed::as_signed(&context, &lease, &heartbeat).await {
            Ok(signed) => {
                run_attempt::run_attempt(&context, &signed, offer, &record, (&output, &heartbeat, &mut slot)).await
            }
            Err(NotRun::Lost) => None,
            Err(NotRun::Ended(finish)) => Some(*finish),
        }
    };
    output.close();
    let Some(finish) = finish else {
        tracing::warn!(lease.id = %lease.id, task.id = %lease.task_id, "Lost the lease; the attempt was stopped and is not reported");
        output.abandon();
        drop(slot);
        return discard(record).await;
    };
    tracing::info!(lease.id = %lease.id, task.id = %lease.task_id, status = ?finish.status,
        code = finish.error.as_ref().map_or("", |error| &*error.code), "An attempt has ended");
    if finish.error.as_ref().is_some_and(|error| &*error.code == "PROVIDER_NOT_SIGNED_IN") {
        context.signed_out.notify_one();
    }
    save_report(&record, &finish).await;
    drop(slot);
    deliver::deliver(&context, record, finish, sender, heartbeat).await;
}

/// Finishes an attempt of an earlier runner process: stops what is left of it, and reports it to the server.
pub(crate) async fn recover(context: Context, record: Record) {
    let finish = match record.finish() {
        Some(finish) => finish.clone(),
        None => {
            orphans::end(
                record.lease().uuid(),
                context.config.timing.term_grace + context.config.timing.leftover_grace,
            )
            .await;
            let mut finish = Outcome::interrupted().report(record.fence());
            finish.provider_session_id = record.provider_session().and_then(|id| Text::new(id).ok());
            let (workplaces, task) = (context.workplaces.clone(), record.task());
            finish.changes = on_disk(move || workplaces.left(task)).await.unwrap_or_else(|error| {
                tracing::error!(task.id = %record.task(), "Cannot read what an attempt has left: {error}");
                None
            });
            save_report(&record, &finish).await;
            finish
        }
    };
    tracing::info!(lease.id = %record.lease(), task.id = %record.task(), status = ?finish.status,
        "Reporting an attempt of an earlier runner");
    let (blocking, opened) = (context.clone(), record.clone());
    let output = match on_disk(move || blocking.output(&opened)).await {
        Ok(output) => output,
        Err(error) => {
            tracing::error!(lease.id = %record.lease(), "Cannot read the output of an earlier attempt: {error}");
            return;
        }
    };
    output.close();
    let heartbeat = Heartbeat::start(&context, record.held());
    let sender = deliver::Sender::start(&context, &record, &output);
    deliver::deliver(&context, record, finish, sender, heartbeat).await;
}

async fn save_report(record: &Record, finish: &LeaseFinish) {
    let (record_to_write, report) = (record.clone(), finish.clone());
    if let Err(error) = on_disk(move || record_to_write.save_finish(&report)).await {
        tracing::error!(lease.id = %record.lease(), "Cannot save a report on disk; it is lost if this runner stops now: {error}");
    }
}

async fn discard(record: Record) {
    let lease = record.lease();
    if let Err(error) = on_disk(move || record.remove()).await {
        tracing::error!(lease.id = %lease, "Cannot remove an attempt from disk: {error}");
    }
}
