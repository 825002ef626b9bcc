//! The runners that requested leases recently. With them, tasks can report that they wait for a machine.

use diesel::prelude::*;
use diesel::upsert::excluded;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::runs::Provider;

use super::schema::runners;
use crate::domain::{ActiveRunner, Runner};

/// Records active runners.
pub(crate) fn record(tx: &mut Conn, active: &[ActiveRunner]) -> Result<(), StoreError> {
    let now = tx.now()?;
    for runner in active {
        let row = (
            runners::owner_id.eq(runner.owner.db()),
            runners::machine_id.eq(runner.machine.as_str()),
            runners::providers.eq(&runner.providers),
            runners::seen_until.eq(now.plus(runner.active_for).db()),
        );
        on!(tx, |c| diesel::insert_into(runners::table)
            .values(row)
            .on_conflict((runners::owner_id, runners::machine_id))
            .do_update()
            .set((
                runners::providers.eq(excluded(runners::providers)),
                runners::seen_until.eq(excluded(runners::seen_until)),
            ))
            .execute(c))?;
    }
    Ok(())
}

/// The active runners of an account.
pub(crate) fn active(c: &mut Conn, owner: UserId) -> Result<Vec<Runner>, StoreError> {
    let rows: Vec<(String, String)> = on!(c, |c| runners::table
        .filter(runners::owner_id.eq(owner.db()).and(runners::seen_until.gt(now())))
        .select((runners::machine_id, runners::providers))
        .load(c))?;
    let runner = |(machine, names): (String, String)| {
        let providers =
            Provider::ALL.into_iter().filter(|provider| names.split(',').any(|name| name == provider.as_str()));
        Runner { machine, providers: providers.collect() }
    };
    Ok(rows.into_iter().map(runner).collect())
}

pub(crate) fn delete(tx: &mut Conn, owner: UserId, machine: &str) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(runners::table.find((owner.db(), machine))).execute(c))?;
    Ok(())
}
