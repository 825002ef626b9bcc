//! Looks for lost notifications at a fixed interval.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;

use super::pause;
use crate::operations::sweep::Sweep;

pub(crate) async fn run(db: Db, every: Duration, drain: Drain) {
    let mut sweep = Sweep::default();
    while pause(every, &drain).await {
        if let Err(error) = sweep.run(&db).await {
            tracing::warn!(?error, "Could not look for changes whose notification was lost");
        }
    }
}
