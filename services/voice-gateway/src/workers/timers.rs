//! Performs what is due. Sleeps until the next deadline in the database, or until an operation sets an earlier one.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::VoiceGateway;
use crate::error::Error;

/// Sessions claimed in one transaction.
const BATCH: usize = 64;
/// Concurrent actions of each replica.
const AT_ONCE: usize = 256;
/// Another replica takes over the sessions of one that dies after this time, which is longer than any action takes.
const LEASE: Duration = Duration::from_secs(30);
/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    while !drain.is_closing() {
        let wait = match round(&service, &permits).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "The timers could not read what is due");
                PAUSE
            }
        };
        tokio::select! {
            () = drain.closing() => return,
            _ = timeout(wait, service.wakeups.earlier()) => {}
        }
    }
}

/// Begins what is due, and says how long to sleep. An action that waits for LiveKit does not delay the others.
async fn round(service: &Arc<VoiceGateway>, permits: &Arc<Semaphore>) -> Result<Duration, Error> {
    let free = permits.available_permits().min(BATCH);
    let due = service.claim_due(i64::try_from(free).unwrap_or(0), LEASE).await?;
    let more = due.len() == BATCH;
    for session in due {
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else { return Ok(PAUSE) };
        let service = Arc::clone(service);
        tokio::spawn(async move {
            if let Err(error) = service.perform_due(&session).await {
                tracing::debug!(voice.session = %session.id, %error, "A due action could not be performed yet");
            }
            drop(permit);
        });
    }
    for id in service.deliverable(i64::try_from(BATCH).unwrap_or(i64::MAX)).await? {
        service.wakeups.deliver(id);
    }
    let (now, next) = service.next_due().await?;
    let sweep = now.plus(service.timing.sweep);
    let until = next.map_or(sweep, |next| next.min(sweep));
    service.wakeups.plan(until);
    // A session that is due and was not claimed is locked by another transaction, or became due since.
    let wait = until.since(now).max(Duration::from_millis(20));
    Ok(if more { Duration::ZERO } else { wait })
}
