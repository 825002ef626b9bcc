//! Counts what there is for the metrics, and forgets what nobody needs any more.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;
use crate::error::Error;
use crate::store::Chore;

const PURGE_EVERY: Duration = Duration::from_secs(600);

pub(crate) async fn keep_up(gateway: Arc<VoiceGateway>, drain: Drain) {
    loop {
        gateway.rates.forget_quiet();
        if let Err(error) = round(&gateway).await {
            tracing::warn!(%error, "Upkeep could not be done");
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(gateway.upkeep.sweep.max(Duration::from_secs(1))) => {}
        }
    }
}

async fn round(gateway: &VoiceGateway) -> Result<(), Error> {
    let (sessions, texts) = gateway.store.census().await?;
    gateway.metrics.census(sessions, texts);
    if gateway.store.claim_chore(Chore::Purge, PURGE_EVERY).await? {
        while gateway.store.purge(gateway.upkeep.keep).await? {}
    }
    Ok(())
}
