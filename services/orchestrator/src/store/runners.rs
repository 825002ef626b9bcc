//! The machines whose runners requested leases. With them, tasks can report why they wait for a machine.

use std::time::Duration;

use diesel::prelude::*;
use diesel::upsert::excluded;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::runs::Provider;
use ensemble_types::time::Timestamp;

use super::schema::runners;
use super::{holds, leases, refusals};
use crate::domain::{ActiveRunner, Runner};

/// A machine that has not asked for leases for this long is not waited for.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Machines of an account that are looked at.
const MOST: i64 = 1_000;

/// Records active runners.
pub(crate) fn record(tx: &mut Conn, active: &[ActiveRunner]) -> Result<(), StoreError> {
    let now = tx.now()?;
    for runner in active {
        let before: Option<String> = on!(tx, |c| runners::table
            .find((runner.owner.db(), runner.machine.as_str()))
            .select(runners::providers)
            .first(c)
            .optional())?;
        let before = providers(before.as_deref().unwrap_or_default());
        for provider in providers(&runner.providers).into_iter().filter(|provider| !before.contains(provider)) {
            refusals::void_of_provider(tx, runner.owner, runner.machine.as_str(), provider)?;
        }
        let row = (
            runners::owner_id.eq(runner.owner.db()),
            runners::machine_id.eq(runner.machine.as_str()),
            runners::providers.eq(&runner.providers),
            runners::seen_until.eq(now.plus(runner.active_for).db()),
            runners::slots.eq(runner.slots.and_then(|slots| i32::try_from(slots).ok())),
        );
        on!(tx, |c| diesel::insert_into(runners::table)
            .values(row)
            .on_conflict((runners::owner_id, runners::machine_id))
            .do_update()
            .set((
                runners::providers.eq(excluded(runners::providers)),
                runners::seen_until.eq(excluded(runners::seen_until)),
                runners::slots.eq(excluded(runners::slots)),
            ))
            .execute(c))?;
    }
    Ok(())
}

/// The machines of an account whose runners asked for leases in the last 30 days, whether or not they are active.
pub(crate) fn of_account(c: &mut Conn, owner: UserId) -> Result<Vec<Runner>, StoreError> {
    let mut rows: Vec<(String, String, Timestamp, Option<i32>, Timestamp)> = on!(c, |c| runners::table
        .filter(runners::owner_id.eq(owner.db()))
        .order(runners::seen_until.desc())
        .limit(MOST)
        .select((runners::machine_id, runners::providers, runners::seen_until, runners::slots, now()))
        .load(c))?;
    rows.retain(|(.., seen_until, _, now)| *seen_until > now.minus(REMEMBERED));
    rows.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let Some((.., now)) = rows.first() else { return Ok(Vec::new()) };
    let now = *now;
    let open = leases::open_by_machine(c, owner)?;
    let holds = holds::of_account(c, owner)?;
    let held = |machine: &str| {
        let of_machine = holds.iter().filter(|(of, _, until)| of == machine && *until > now);
        of_machine.map(|(_, provider, until)| (*provider, *until)).collect()
    };
    let runner = |(machine, names, seen_until, slots, _): (String, String, Timestamp, Option<i32>, Timestamp)| Runner {
        providers: providers(&names),
        slots: slots.map(i64::from),
        running: open.get(&machine).copied().unwrap_or(0),
        is_active: seen_until > now,
        held: held(&machine),
        seen_until,
        machine,
    };
    Ok(rows.into_iter().map(runner).collect())
}

/// Names of providers that are separated by commas.
fn providers(names: &str) -> Vec<Provider> {
    names.split(',').filter_map(|name| name.parse().ok()).collect()
}

pub(crate) fn delete(tx: &mut Conn, owner: UserId, machine: &str) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(runners::table.find((owner.db(), machine))).execute(c))?;
    Ok(())
}
