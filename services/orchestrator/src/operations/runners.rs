//! The runners that request leases, and what they offer.

use ensemble_store_kit::{Db, StoreError};

use crate::domain::ActiveRunner;
use crate::store::runners;

/// Records active runners, so that tasks can report whether they wait for a machine.
pub(crate) async fn record(db: &Db, active: Vec<ActiveRunner>) -> Result<(), StoreError> {
    db.write("record active runners", move |tx| runners::record(tx, &active)).await
}
