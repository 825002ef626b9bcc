//! The providers that machines wait for, because their usage limits are reached.

use diesel::dsl::case_when;
use diesel::prelude::*;
use diesel::upsert::excluded;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::runs::Provider;
use ensemble_types::time::Timestamp;

use super::columns::ProviderColumn;
use super::schema::provider_holds;

/// The timer ends more holds at once in several transactions.
const ENDED_AT_ONCE: i64 = 100;

/// Gives a machine no task of a provider until then, or until the end of an earlier hold if that is later. Returns which.
pub(crate) fn hold(
    tx: &mut Conn,
    (owner, machine, provider): (UserId, &str, Provider),
    until: Timestamp,
) -> Result<Timestamp, StoreError> {
    let row = (
        provider_holds::owner_id.eq(owner.db()),
        provider_holds::machine_id.eq(machine),
        provider_holds::provider.eq(provider.as_str()),
        provider_holds::held_until.eq(until.db()),
    );
    let (stored, new) = (provider_holds::held_until, excluded(provider_holds::held_until));
    let later = case_when(stored.gt(new), stored).otherwise(new);
    on!(tx, |c| diesel::insert_into(provider_holds::table)
        .values(row)
        .on_conflict((provider_holds::owner_id, provider_holds::machine_id, provider_holds::provider))
        .do_update()
        .set(provider_holds::held_until.eq(later))
        .returning(provider_holds::held_until)
        .get_result(c))
}

/// The holds of an account in the order of their keys: machine, provider and end.
pub(crate) fn of_account(c: &mut Conn, owner: UserId) -> Result<Vec<(String, Provider, Timestamp)>, StoreError> {
    let rows: Vec<(String, ProviderColumn, Timestamp)> = on!(c, |c| provider_holds::table
        .filter(provider_holds::owner_id.eq(owner.db()))
        .order((provider_holds::machine_id, provider_holds::provider))
        .select((provider_holds::machine_id, provider_holds::provider, provider_holds::held_until))
        .load(c))?;
    Ok(rows.into_iter().map(|(machine, provider, until)| (machine, provider.into(), until)).collect())
}

/// Ends one hold. False when there is none.
pub(crate) fn lift(tx: &mut Conn, owner: UserId, machine: &str, provider: Provider) -> Result<bool, StoreError> {
    let row = provider_holds::table.find((owner.db(), machine, provider.as_str()));
    on!(tx, |c| diesel::delete(row).execute(c)).map(|lifted| lifted > 0)
}

/// Ends the holds of a machine that was deleted.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, machine: &str) -> Result<(), StoreError> {
    let of_machine = provider_holds::owner_id.eq(owner.db()).and(provider_holds::machine_id.eq(machine));
    on!(tx, |c| diesel::delete(provider_holds::table.filter(of_machine)).execute(c)).map(drop)
}

/// When the next hold ends.
pub(crate) fn next_end(c: &mut Conn) -> Result<Option<Timestamp>, StoreError> {
    on!(c, |c| provider_holds::table
        .order(provider_holds::held_until)
        .select(provider_holds::held_until)
        .first(c)
        .optional())
}

/// Ends the holds whose time has come, in the order of their keys, so that two transactions cannot wait for each other.
/// Returns their machines.
pub(crate) fn end_due(tx: &mut Conn) -> Result<Vec<(UserId, String)>, StoreError> {
    let now = tx.now()?;
    let due: Vec<(UserId, String, ProviderColumn)> = on!(tx, |c| provider_holds::table
        .filter(provider_holds::held_until.le(now.db()))
        .order((provider_holds::owner_id, provider_holds::machine_id, provider_holds::provider))
        .select((provider_holds::owner_id, provider_holds::machine_id, provider_holds::provider))
        .limit(ENDED_AT_ONCE)
        .load(c))?;
    let mut ended = Vec::new();
    for (owner, machine, provider) in due {
        let provider = Provider::from(provider);
        let row = provider_holds::table.find((owner.db(), &machine, provider.as_str()));
        // It may have become longer meanwhile.
        let is_due = provider_holds::held_until.le(now.db());
        if on!(tx, |c| diesel::delete(row.filter(is_due)).execute(c))? > 0 {
            ended.push((owner, machine));
        }
    }
    Ok(ended)
}
