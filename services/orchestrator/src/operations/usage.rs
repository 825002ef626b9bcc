//! What an account's attempts cost.

use std::time::Duration;

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use ensemble_types::usage::{UsageBy, UsageItem, UsageReport, UsageSum};

use crate::error::Error;
use crate::store::usage;

/// The longest time that a report is about, in days.
const LONGEST: i32 = 366;
/// The usual one.
const USUAL: i32 = 30;

/// The usage of the days from one time to another, both included.
pub(crate) async fn report(
    db: &Db,
    owner: UserId,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    by: UsageBy,
) -> Result<UsageReport, Error> {
    db.read("read the usage", move |c| {
        let last = usage::day(to.map_or_else(|| c.now(), Ok)?);
        let first = from.map_or(last - (USUAL - 1), usage::day);
        if !(0..LONGEST).contains(&(last - first)) {
            return Err(Error::InvalidField("?from", "must be before `to`, and at most 366 days before it"));
        }
        let days = (owner, first, last);
        let (items, total) = (items(c, days, by)?, usage::total(c, days)?);
        let to = usage::beginning(last).plus(Duration::from_secs(86_400));
        Ok(UsageReport { from: usage::beginning(first), to, by, items, total })
    })
    .await
}

fn items(c: &mut Conn, days: usage::Days, by: UsageBy) -> Result<Vec<UsageItem>, StoreError> {
    let item = |sum: UsageSum| UsageItem { day: None, machine_id: None, provider: None, sum };
    Ok(match by {
        UsageBy::Day => {
            let date = |day: i32| usage::beginning(day).to_string().chars().take(10).collect();
            let rows = usage::by_day(c, days)?.into_iter();
            rows.map(|(day, sum)| UsageItem { day: Some(date(day)), ..item(sum) }).collect()
        }
        UsageBy::Machine => {
            let rows = usage::by_machine(c, days)?.into_iter();
            // What is not the id of a machine was never stored.
            rows.map(|(machine, sum)| UsageItem { machine_id: machine.parse().ok(), ..item(sum) }).collect()
        }
        UsageBy::Provider => {
            let rows = usage::by_provider(c, days)?.into_iter();
            rows.map(|(provider, sum)| UsageItem { provider: Some(provider), ..item(sum) }).collect()
        }
    })
}
