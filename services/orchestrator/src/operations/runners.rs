//! The runners that request leases, and what they offer.

use std::collections::BTreeSet;

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::UserId;
use ensemble_types::runs::Provider;

use crate::domain::{ActiveRunner, RunDraft};
use crate::error::Error;
use crate::store::runners;

/// Records active runners, so that tasks can report whether they wait for a machine.
pub(crate) async fn record(db: &Db, active: Vec<ActiveRunner>) -> Result<(), StoreError> {
    db.write("record active runners", move |tx| runners::record(tx, &active)).await
}

/// Refuses a run with a provider that no machine of the account has: with a typing error it would wait for ever.
pub(super) fn check_offered(tx: &mut Conn, owner: UserId, draft: &RunDraft) -> Result<(), Error> {
    let mut offered = BTreeSet::from(Provider::ALL);
    if draft.tasks.iter().all(|task| offered.contains(&task.provider)) {
        return Ok(());
    }
    offered.extend(runners::of_account(tx, owner)?.into_iter().flat_map(|runner| runner.providers));
    match draft.tasks.iter().enumerate().find(|(_, task)| !offered.contains(&task.provider)) {
        Some((at, task)) => Err(Error::NotOffered { task: at, provider: task.provider }),
        None => Ok(()),
    }
}
