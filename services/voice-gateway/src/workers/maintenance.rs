//! Refreshes the gauges and deletes old rows.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;
use crate::store::utterances;

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    loop {
        if let Err(error) = service.maintain().await {
            tracing::warn!(%error, "Maintenance failed; it runs again soon");
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(service.timing.sweep.max(Duration::from_secs(1))) => {}
        }
    }
}

/// How much of what users said is kept.
pub(crate) async fn measure(service: Arc<VoiceGateway>, drain: Drain) {
    let (retention, db) = (service.retention.clone(), service.db.clone());
    retention.measure(db, drain.closing(), utterances::bytes_of_users).await;
}
