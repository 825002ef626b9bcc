//! Counting for the metrics, and deleting what is old.

use std::time::{Duration, Instant};

use ensemble_store_kit::{Conn, rest_after};

use crate::VoiceGateway;
use crate::error::Error;
use crate::store::chores::{self, Chore};
use crate::store::{sessions, usage, webhook_deliveries, webhooks};

/// Longer than LiveKit repeats a webhook.
const WEBHOOKS_KEPT: Duration = Duration::from_secs(3_600);
/// How long webhooks for unconfigured endpoints are kept after the end of their tries.
const UNKNOWN_KEPT: Duration = Duration::from_secs(86_400);
/// Only today's seconds are read.
const USAGE_KEPT: Duration = Duration::from_secs(31 * 86_400);
const PURGE_EVERY: Duration = Duration::from_secs(600);
/// Rows deleted in one transaction.
const BATCH: i64 = 100;

impl VoiceGateway {
    pub(crate) async fn maintain(&self) -> Result<(), Error> {
        self.rates.remove_idle();
        let (open, queued) = self.db.read("count voice sessions", sessions::count_open).await?;
        self.metrics.set_gauges(open, queued);
        if self.absences.is_any() {
            for session in self.db.read("look for agents that came", sessions::live).await? {
                if let Some(since) = session.state.live().and_then(|live| live.agent.since()) {
                    self.absences.seen(&session.agent_name, since);
                }
            }
        }
        self.count_webhook_deliveries().await?;
        self.delete_transcripts().await?;
        let purge: Result<bool, Error> =
            self.db.write("claim the purge", |tx| Ok(chores::claim(tx, Chore::Purge, PURGE_EVERY)?)).await;
        if purge? {
            let keep = self.timing.keep;
            loop {
                let begun = Instant::now();
                let (of_sessions, of_webhooks) =
                    self.db.write("purge old voice sessions", move |tx| purge_batch(tx, keep)).await?;
                self.retention.count_removed("sessions", of_sessions);
                self.retention.count_removed("webhooks", of_webhooks);
                if of_sessions + of_webhooks < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                    break;
                }
                tokio::time::sleep(rest_after(begun.elapsed())).await;
            }
        }
        Ok(())
    }
}

/// How many sessions and webhooks are deleted.
fn purge_batch(tx: &mut Conn, keep: Duration) -> Result<(usize, usize), Error> {
    let now = tx.now()?;
    usage::purge(tx, now.minus(USAGE_KEPT))?;
    let of_sessions = sessions::purge(tx, now.minus(keep), BATCH)?;
    let of_webhooks = webhooks::purge(tx, now.minus(WEBHOOKS_KEPT), BATCH)?
        + webhook_deliveries::purge(tx, now.minus(UNKNOWN_KEPT), BATCH)?;
    Ok((of_sessions, of_webhooks))
}
