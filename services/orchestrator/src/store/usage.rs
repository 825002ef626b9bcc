//! What attempts cost, in sums by day, machine and provider. The sums stay when runs are deleted, and their number grows with
//! the days and not with the tasks.

use std::collections::BTreeMap;

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double};
use diesel::upsert::excluded;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::runs::{Provider, Usage};
use ensemble_types::time::Timestamp;
use ensemble_types::usage::UsageSum;

use super::columns::ProviderColumn;
use super::schema::usage_days;

const DAY: i64 = 86_400_000_000;
/// Sums in one answer.
const MOST: i64 = 1_000;
/// What one attempt counts at most. A runner reports any number, and the sums must stay within their columns.
const MOST_TOKENS: u64 = 1 << 36;
pub(crate) const MOST_COST: f64 = 1e6;

/// Account, day, machine and provider.
type Key = (UserId, i32, String, Provider);

/// What a transaction adds. In the order of the keys, so that no two transactions deadlock.
#[derive(Debug, Default)]
pub(crate) struct Spent(BTreeMap<Key, UsageSum>);

impl Spent {
    /// An attempt ended and reported this.
    pub(crate) fn add(&mut self, owner: UserId, at: Timestamp, machine: &str, provider: Provider, usage: Usage) {
        let Usage { input_tokens, output_tokens, cost_usd } = bounded(usage);
        // An attempt that ended at the provider's limit at once reports zeros.
        if input_tokens.unwrap_or(0) == 0 && output_tokens.unwrap_or(0) == 0 && cost_usd.unwrap_or(0.0) <= 0.0 {
            return;
        }
        let sum = self.0.entry((owner, day(at), machine.to_owned(), provider)).or_default();
        sum.attempts += 1;
        sum.input_tokens += input_tokens.unwrap_or(0);
        sum.output_tokens += output_tokens.unwrap_or(0);
        sum.cost_usd += cost_usd.unwrap_or(0.0);
    }

    pub(crate) fn save(&self, tx: &mut Conn) -> Result<(), StoreError> {
        for ((owner, day, machine, provider), sum) in &self.0 {
            let row = (
                usage_days::owner_id.eq(owner.db()),
                usage_days::day.eq(day),
                usage_days::machine_id.eq(machine),
                usage_days::provider.eq(provider.as_str()),
                usage_days::attempts.eq(signed(sum.attempts)),
                usage_days::input_tokens.eq(signed(sum.input_tokens)),
                usage_days::output_tokens.eq(signed(sum.output_tokens)),
                usage_days::cost_usd.eq(sum.cost_usd),
            );
            on!(tx, |c| diesel::insert_into(usage_days::table)
                .values(row)
                .on_conflict((usage_days::owner_id, usage_days::day, usage_days::machine_id, usage_days::provider))
                .do_update()
                .set((
                    usage_days::attempts.eq(usage_days::attempts + excluded(usage_days::attempts)),
                    usage_days::input_tokens.eq(usage_days::input_tokens + excluded(usage_days::input_tokens)),
                    usage_days::output_tokens.eq(usage_days::output_tokens + excluded(usage_days::output_tokens)),
                    usage_days::cost_usd.eq(usage_days::cost_usd + excluded(usage_days::cost_usd)),
                ))
                .execute(c))?;
        }
        Ok(())
    }
}

/// The day of a time, counted from 1970-01-01 in UTC.
pub(crate) fn day(at: Timestamp) -> i32 {
    i32::try_from(at.micros().div_euclid(DAY)).unwrap_or(0)
}

/// The beginning of a day.
pub(crate) fn beginning(day: i32) -> Timestamp {
    Timestamp::from_micros(i64::from(day) * DAY)
}

/// An account, and the first and the last day.
pub(crate) type Days = (UserId, i32, i32);

type Sums = (i64, i64, i64, f64);

macro_rules! of_days {
    ($days:expr) => {
        usage_days::table
            .filter(usage_days::owner_id.eq($days.0.db()))
            .filter(usage_days::day.ge($days.1).and(usage_days::day.le($days.2)))
    };
}

/// PostgreSQL's sum of bigints is a numeric, which SQLite does not have.
macro_rules! sums {
    () => {
        (
            sql::<BigInt>("CAST(COALESCE(sum(attempts), 0) AS bigint)"),
            sql::<BigInt>("CAST(COALESCE(sum(input_tokens), 0) AS bigint)"),
            sql::<BigInt>("CAST(COALESCE(sum(output_tokens), 0) AS bigint)"),
            sql::<Double>("COALESCE(sum(cost_usd), 0.0)"),
        )
    };
}

pub(crate) fn total(c: &mut Conn, days: Days) -> Result<UsageSum, StoreError> {
    let sums: Sums = on!(c, |c| of_days!(days).select(sums!()).first(c))?;
    Ok(sum(sums))
}

pub(crate) fn by_day(c: &mut Conn, days: Days) -> Result<Vec<(i32, UsageSum)>, StoreError> {
    let rows: Vec<(i32, Sums)> = on!(c, |c| of_days!(days)
        .group_by(usage_days::day)
        .order(usage_days::day)
        .select((usage_days::day, sums!()))
        .limit(MOST)
        .load(c))?;
    Ok(rows.into_iter().map(|(day, sums)| (day, sum(sums))).collect())
}

pub(crate) fn by_machine(c: &mut Conn, days: Days) -> Result<Vec<(String, UsageSum)>, StoreError> {
    let rows: Vec<(String, Sums)> = on!(c, |c| of_days!(days)
        .group_by(usage_days::machine_id)
        .order((sql::<Double>("sum(cost_usd) DESC"), usage_days::machine_id))
        .select((usage_days::machine_id, sums!()))
        .limit(MOST)
        .load(c))?;
    Ok(rows.into_iter().map(|(machine, sums)| (machine, sum(sums))).collect())
}

pub(crate) fn by_provider(c: &mut Conn, days: Days) -> Result<Vec<(Provider, UsageSum)>, StoreError> {
    let rows: Vec<(ProviderColumn, Sums)> = on!(c, |c| of_days!(days)
        .group_by(usage_days::provider)
        .order((sql::<Double>("sum(cost_usd) DESC"), usage_days::provider))
        .select((usage_days::provider, sums!()))
        .load(c))?;
    Ok(rows.into_iter().map(|(provider, sums)| (provider.into(), sum(sums))).collect())
}

fn sum((attempts, input_tokens, output_tokens, cost_usd): Sums) -> UsageSum {
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    UsageSum {
        attempts: count(attempts),
        input_tokens: count(input_tokens),
        output_tokens: count(output_tokens),
        cost_usd,
    }
}

/// What a report counts. A runner may report any number.
pub(super) fn bounded(usage: Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.map(|count| count.min(MOST_TOKENS)),
        output_tokens: usage.output_tokens.map(|count| count.min(MOST_TOKENS)),
        cost_usd: usage.cost_usd.map(|cost| cost.clamp(0.0, MOST_COST)),
    }
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
