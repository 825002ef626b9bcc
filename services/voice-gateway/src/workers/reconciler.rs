//! Compares with LiveKit at fixed times; one replica does it for all.

use std::sync::Arc;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;
use crate::store::Chore;

pub(crate) async fn reconcile(gateway: Arc<VoiceGateway>, drain: Drain) {
    let every = gateway.upkeep.reconcile;
    loop {
        match gateway.store.claim_chore(Chore::Reconcile, every).await {
            Ok(true) => {
                if let Err(error) = gateway.reconcile().await {
                    tracing::warn!(%error, "The rooms could not be compared with LiveKit");
                }
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "The database does not say whose turn it is to compare rooms"),
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(every) => {}
        }
    }
}
