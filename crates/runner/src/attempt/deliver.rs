//! Getting what an attempt said and what it came to into the server's hands, however long the server is away.

use std::sync::Arc;

use ensemble_client::HeldLease;
use ensemble_types::leases::{LeaseFinish, LeaseOutput};
use ensemble_types::text::Blob;
use tokio::task::JoinHandle;

use super::heart::{Heart, Pulse};
use super::{Context, discard};
use crate::backoff::Backoff;
use crate::disk::on_disk;
use crate::server::ServerError;
use crate::spool::{OutputSpool, Record};
use crate::wake;

/// The most that is sent in one piece, in bytes. The interface takes twice as much.
const PIECE: u64 = 512 * 1024;

/// Sends the output as it comes. It ends when the output is closed and taken, or when nobody wants it.
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

/// Waits for the output to be taken, then reports, until the server has answered. Whether the lease is lost is
/// decided by the answer to the report alone.
pub(super) async fn deliver(context: &Context, record: Record, finish: LeaseFinish, mut sender: Sender, heart: Heart) {
    tokio::select! {
        _ = &mut sender.0 => {}
        () = heart.reached(Pulse::Lost) => {}
    }
    let held = record.held();
    let mut backoff = Backoff::of(&context.config.timing);
    let mut woken = context.woken.clone();
    loop {
        let error = match context.server.finish(&held, &finish).await {
            Ok(()) | Err(ServerError::LeaseLost) => return discard(record).await,
            Err(ServerError::Refused(reason)) => {
                tracing::error!(lease.id = %record.lease(), task.id = %record.task(), "The server refused a report: {reason}");
                let path = record.path().display().to_string();
                return match on_disk(move || record.refuse()).await {
                    Ok(()) => tracing::warn!(path, "A refused report is kept for you to look at"),
                    Err(error) => tracing::error!(path, "Cannot set a refused report aside: {error}"),
                };
            }
            Err(error) => error,
        };
        tracing::debug!(lease.id = %record.lease(), "A report did not arrive, and will be sent again: {error}");
        tokio::select! {
            () = tokio::time::sleep(backoff.pause(&error)) => {}
            () = wake::next(&mut woken) => {}
        }
    }
}

async fn send(context: Context, lease: HeldLease, output: Arc<OutputSpool>) {
    let timing = context.config.timing;
    // All attempts of a machine share its rate of requests.
    let interval = timing.output_interval.max(timing.output_interval * context.config.capacity / 5);
    let mut backoff = Backoff::of(&timing);
    let mut woken = context.woken.clone();
    while let Some(offset) = output.waiting().await {
        let Some(piece) = read(&output, offset).await else { return output.abandon() };
        let until = offset + u64::try_from(piece.len()).unwrap_or(0);
        match context.server.output(&lease, &LeaseOutput { fence: lease.fence, offset, data: piece }).await {
            Ok(()) => {
                backoff.reset();
                output.took(until);
                // Where much is waiting, waiting for more makes no fewer requests.
                if until - offset < PIECE / 2 && !output.is_closed() {
                    tokio::time::sleep(interval).await;
                }
            }
            Err(ServerError::Gap(expected)) if expected != offset && expected >= output.oldest() => {
                output.took(expected)
            }
            Err(error @ (ServerError::LeaseLost | ServerError::Refused(_) | ServerError::Gap(_))) => {
                tracing::warn!(lease.id = %lease.id, "The rest of an attempt's output is not sent: {error}");
                return output.abandon();
            }
            Err(error) => {
                tracing::debug!(lease.id = %lease.id, "Output did not arrive, and will be sent again: {error}");
                tokio::select! {
                    () = tokio::time::sleep(backoff.pause(&error)) => {}
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
            tracing::error!("What an attempt said is not where it was put");
            None
        }
        Err(error) => {
            tracing::error!("Cannot read what an attempt said: {error}");
            None
        }
    }
}
