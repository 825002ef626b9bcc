//! Sends the output and the report of an attempt to the server, and retries for as long as the server is unavailable.

use std::sync::Arc;

use ensemble_client::HeldLease;
use ensemble_host::wake;
use ensemble_process::disk::on_disk;
use ensemble_types::changes::LeaseDiff;
use ensemble_types::leases::{FinishStatus, LeaseFinish, LeaseOutput};
use ensemble_types::text::{Blob, Text};
use tokio::task::JoinHandle;

use super::heartbeat::{Heartbeat, LeaseState};
use super::{Context, discard};
use crate::server::ServerError;
use crate::spool::{OutputSpool, Record};
use crate::workplace::DiffPart;

/// The largest piece that is sent at once, in bytes. The interface accepts twice as much.
const PIECE: u64 = 512 * 1024;

/// Sends output as it arrives. Ends when the output is closed and fully sent, or abandoned.
pub(super) struct Sender(JoinHandle<()>);

impl Sender {
    pub(super) fn start(context: &Context, record: &Record, output: &Arc<OutputSpool>) -> Self {
        Self(tokio::spawn(send(context.clone(), record.held(), output.clone())))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until all output is sent, then sends the report until the server has answered it. Only that answer decides
/// whether the lease is lost.
pub(super) async fn deliver(
    context: &Context,
    record: Record,
    mut finish: LeaseFinish,
    mut sender: Sender,
    heartbeat: Heartbeat,
) {
    tokio::select! {
        _ = &mut sender.0 => {}
        () = heartbeat.reached(LeaseState::Lost) => {}
    }
    let held = record.held();
    let is_sent = send_diff(context, &record, &held).await;
    if let Some(changes) = &mut finish.changes {
        changes.partial |= !is_sent;
    }
    let mut backoff = context.config.timing.backoff();
    let mut woken = context.woken.clone();
    loop {
        let error = match context.server.finish(&held, &finish).await {
            Ok(()) | Err(ServerError::LeaseLost) => return discard(record).await,
            // An earlier version of the server does not know this status.
            Err(ServerError::Refused(reason)) if finish.status == FinishStatus::Quota => {
                tracing::warn!(lease.id = %record.lease(), "The server refused to wait for the provider's limit: {reason}");
                finish = LeaseFinish { status: FinishStatus::Failed, resume_at: None, ..finish };
                continue;
            }
            Err(ServerError::Refused(reason)) => {
                tracing::error!(lease.id = %record.lease(), task.id = %record.task(), "The server refused a report: {reason}");
                let path = record.path().display().to_string();
                return match on_disk(move || record.refuse()).await {
                    Ok(()) => tracing::warn!(path, "The refused report is kept on disk for inspection"),
                    Err(error) => tracing::error!(path, "Cannot move a refused report: {error}"),
                };
            }
            Err(error) => error,
        };
        tracing::debug!(lease.id = %record.lease(), "Sending a report failed and will be retried: {error}");
        tokio::select! {
            () = tokio::time::sleep(backoff.pause(error.retry_after())) => {}
            () = wake::next(&mut woken) => {}
        }
    }
}

/// Sends what the attempt changed. What the server refuses is left out: the report matters more. Returns whether all was sent.
async fn send_diff(context: &Context, record: &Record, held: &HeldLease) -> bool {
    let reader = record.clone();
    let parts = match on_disk(move || reader.diff()).await {
        Ok(parts) => parts,
        Err(error) => {
            tracing::error!(lease.id = %held.id, "Cannot read what an attempt changed: {error}");
            return false;
        }
    };
    let mut is_whole = true;
    let mut backoff = context.config.timing.backoff();
    let mut woken = context.woken.clone();
    for DiffPart { path, data } in parts {
        let (path, data) = (path.and_then(|path| Text::new(path).ok()), Blob::new(data));
        let Ok(data) = data else {
            is_whole = false;
            continue;
        };
        let diff = LeaseDiff { fence: held.fence, path, data };
        while let Err(error) = context.server.diff(held, &diff).await {
            if !matches!(error, ServerError::Unavailable { .. } | ServerError::Unauthorized(_)) {
                tracing::warn!(lease.id = %held.id, "What an attempt changed is not sent: {error}");
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.pause(error.retry_after())) => {}
                () = wake::next(&mut woken) => {}
            }
        }
    }
    is_whole
}

async fn send(context: Context, lease: HeldLease, output: Arc<OutputSpool>) {
    let timing = context.config.timing;
    let mut backoff = timing.backoff();
    let mut woken = context.woken.clone();
    while let Some(offset) = output.next_unsent().await {
        let Some(piece) = read(&output, offset).await else { return output.abandon() };
        let until = offset + u64::try_from(piece.len()).unwrap_or(0);
        match context.server.output(&lease, &LeaseOutput { fence: lease.fence, offset, data: piece }).await {
            Ok(()) => {
                backoff.reset();
                output.acknowledge(until);
                // A large backlog needs full pieces, so waiting would not reduce the number of requests.
                if until - offset < PIECE / 2 && !output.is_closed() {
                    // The attempts of a machine share its request rate.
                    let interval = timing.output_interval * context.held.count() / 5;
                    tokio::time::sleep(interval.max(timing.output_interval)).await;
                }
            }
            Err(ServerError::Gap(expected)) if expected != offset && expected >= output.oldest() => {
                output.acknowledge(expected)
            }
            Err(error @ (ServerError::LeaseLost | ServerError::Refused(_) | ServerError::Gap(_))) => {
                tracing::warn!(lease.id = %lease.id, "The rest of an attempt's output will not be sent: {error}");
                return output.abandon();
            }
            Err(error) => {
                tracing::debug!(lease.id = %lease.id, "Sending output failed and will be retried: {error}");
                tokio::select! {
                    () = tokio::time::sleep(backoff.pause(error.retry_after())) => {}
                    () = wake::next(&mut woken) => {}
                }
            }
        }
    }
}

/// The next piece, never empty.
async fn read(output: &Arc<OutputSpool>, offset: u64) -> Option<Blob<0, 1_048_576>> {
    let reader = output.clone();
    match on_disk(move || reader.read(offset, PIECE)).await {
        Ok(piece) if !piece.is_empty() => Blob::new(piece).ok(),
        Ok(_) => {
            tracing::error!("The stored output of an attempt is missing");
            None
        }
        Err(error) => {
            tracing::error!("Cannot read the stored output of an attempt: {error}");
            None
        }
    }
}
