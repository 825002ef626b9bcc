//! Pages of a history: their rate compared with pgbench with the same select, and the cost of a page in a short and a long
//! history.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::fixture::Fixture;
use crate::load::{pgbench, wrk};
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const CLIENTS: u32 = 16;
const SHORT: u32 = 10_000;
const LONG: u32 = 1_000_000;
/// The number of pages whose buffers are counted.
const PLACES: u32 = 20;

/// Their rate.
pub(crate) fn pages(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let session = short(machine, &fixture)?;
    rate(machine, options, report, &fixture, &session, SHORT)
}

/// Their rate and cost in a history that is a hundred times as long.
pub(crate) fn long(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let session = short(machine, &fixture)?;
    let before = page_buffers(machine, &fixture, &session, SHORT)?;
    grow(machine, &fixture, &session)?;
    rate(machine, options, report, &fixture, &session, LONG)?;
    let after = page_buffers(machine, &fixture, &session, LONG)?;
    eprintln!("   buffers of a page: {before:.1} at {SHORT} messages, {after:.1} at {LONG}");
    let mut difference = Rounds::default();
    difference.push((after - before).abs());
    report.alone(
        &format!("history: buffers of a page at {LONG} messages less those at {SHORT}"),
        "buffers",
        difference,
        Target::AtMost(3.0),
    );
    Ok(())
}

/// A session with a short history.
fn short(machine: &Machine, fixture: &Fixture<'_>) -> Result<String> {
    let session = fixture.sessions(1)?.pop().context("no session")?;
    fixture.fill(&session, usize::try_from(SHORT)?, 1024)?;
    machine.sql(&fixture.store_database, "VACUUM ANALYZE")?;
    // Its reads would count as the pages'.
    machine.sql(&fixture.store_database, "ALTER TABLE messages SET (autovacuum_enabled = false)")?;
    Ok(session)
}

fn rate(
    machine: &Machine,
    options: &Options,
    report: &mut Report,
    fixture: &Fixture<'_>,
    session: &str,
    length: u32,
) -> Result<()> {
    let highest = length - 100;
    let script = format!(
        "\\set at random(100, {highest})\nSELECT * FROM messages WHERE session_id = '{session}' AND seq < :at ORDER BY seq DESC LIMIT 50;\n"
    );
    let length = length.to_string();
    let env = [("TOKEN", fixture.token.as_str()), ("SESSION", session), ("LENGTH", length.as_str())];
    let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        theirs.push(pgbench(&machine.pgbench, &fixture.store_database, CLIENTS, options.round, &script)?);
        ours.push(wrk(&fixture.store.public, CLIENTS, options.round, "history.lua", &env)?.per_second);
    }
    report.versus(
        &format!("history: page of 50 (1 KiB each) of {length}, {CLIENTS} clients"),
        "pages/s",
        ours,
        ("pgbench, same select", theirs),
        Target::AtLeast(0.3),
    );
    Ok(())
}

/// Copies the first message until the history is long.
fn grow(machine: &Machine, fixture: &Fixture<'_>, session: &str) -> Result<()> {
    machine.sql(
        &fixture.store_database,
        &format!(
            "INSERT INTO messages (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at) \
             SELECT session_id, n, gen_random_uuid(), sender_id, 'grown-' || n, content, key_epoch, created_at \
             FROM generate_series({SHORT} + 1, {LONG}) n, messages WHERE session_id = '{session}' AND seq = 1; \
             UPDATE sessions SET last_seq = {LONG} WHERE id = '{session}'"
        ),
    )?;
    machine.sql(&fixture.store_database, "VACUUM ANALYZE")
}

/// The buffers of the table and its indexes that a page touches, from PostgreSQL's own statistics. The mean over pages from
/// the whole history, because a page of messages can cross the border of two buffers.
fn page_buffers(machine: &Machine, fixture: &Fixture<'_>, session: &str, length: u32) -> Result<f64> {
    let before = touched(machine, &fixture.store_database)?;
    for place in 1..=PLACES {
        let last = length / (PLACES + 1) * place;
        let path = format!("/v3/sessions/{session}/messages?limit=50&before={last}");
        fixture.call(&fixture.store.public, "GET", &path, Value::Null)?;
    }
    let after = touched(machine, &fixture.store_database)?;
    ensure!(after > before, "PostgreSQL counted no buffers");
    Ok((after - before) / f64::from(PLACES))
}

/// Buffers of `messages` and its indexes that were touched so far. A connection reports its counts after at most ten idle
/// seconds, so this waits until they have not changed for longer.
fn touched(machine: &Machine, url: &str) -> Result<f64> {
    const QUERY: &str = "SELECT (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::text \
                         FROM pg_statio_user_tables WHERE relname = 'messages'";
    let (mut last, mut unchanged) = (String::new(), 0);
    while unchanged < 24 {
        let found = machine.rows(url, QUERY)?.into_iter().flatten().next().context("no statistics")?;
        unchanged = if found == last { unchanged + 1 } else { 0 };
        last = found;
        machine.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    }
    Ok(last.parse()?)
}
