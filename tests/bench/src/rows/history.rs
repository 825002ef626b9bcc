//! Pages of a history: their rate beside pgbench with the same select, and the cost of a page in a short and a long
//! history.

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

pub(crate) fn pages(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let session = fixture.sessions(1)?.pop().context("no session")?;
    fixture.fill(&session, usize::try_from(SHORT)?, 1024)?;
    machine.sql(&fixture.store_database, "VACUUM ANALYZE")?;
    rate(machine, options, report, &fixture, &session, SHORT)?;
    let before = page_buffers(machine, &fixture, &session, SHORT)?;
    grow(machine, &fixture, &session)?;
    rate(machine, options, report, &fixture, &session, LONG)?;
    let after = page_buffers(machine, &fixture, &session, LONG)?;
    let mut difference = Rounds::default();
    difference.push((after - before).abs());
    report.alone(
        &format!("history: buffers of a page at {LONG} messages ({after:.1}) less those at {SHORT} ({before:.1})"),
        "buffers",
        difference,
        Target::AtMost(3.0),
    );
    Ok(())
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
    report.beside(
        &format!("history: page of 50 (1 KiB each) of {length}, {CLIENTS} clients"),
        "pages/s",
        ours,
        ("pgbench, same select", theirs),
        Target::AtLeast(0.2),
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

/// The buffers that the service's statement touches, from `EXPLAIN (ANALYZE, BUFFERS)`. The mean over the whole
/// history, because a page of messages can cross the border of two buffers.
fn page_buffers(machine: &Machine, fixture: &Fixture<'_>, session: &str, length: u32) -> Result<f64> {
    let url = &fixture.store_database;
    let path = format!("/v3/sessions/{session}/messages?limit=50");
    fixture.call(&fixture.store.public, "GET", &path, Value::Null)?;
    let texts = machine.rows(
        url,
        "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%FROM sessions s LEFT JOIN shares%'",
    )?;
    let text = texts.into_iter().next().and_then(|mut row| row.pop()).context("the service read no page")?;
    ensure!(text.matches("$7").count() == 1 && text.len() < 1_000, "another statement than this row knows: {text}");
    // The caller, the session, the first and last number, the limits of messages and bytes, and the session again.
    // EXPLAIN is not allowed in a subquery, so a function returns its output as text.
    machine.sql(
        url,
        &format!(
            "CREATE OR REPLACE FUNCTION explained(last bigint) RETURNS text LANGUAGE plpgsql AS $f$ DECLARE found json; BEGIN \
             EXECUTE $e$ PREPARE page (uuid, uuid, bigint, bigint, bigint, bigint, uuid) AS {text} $e$; \
             EXECUTE $e$ EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE page (\
             '00000000-0000-0000-0000-000000000000', '{session}', 1, $e$ || last || $e$, 50, 4194304, '{session}') $e$ \
             INTO found; DEALLOCATE page; RETURN found::text; END $f$"
        ),
    )?;
    let mut buffers = 0.0;
    for place in 1..=PLACES {
        let last = length / (PLACES + 1) * place;
        // The first run may read from disk; the second has a warm cache.
        let _ = machine.rows(url, &format!("SELECT explained({last})"))?;
        let text = machine.rows(url, &format!("SELECT explained({last})"))?;
        let plan: Value = serde_json::from_str(text.first().and_then(|row| row.first()).context("no plan")?)?;
        let top = plan.pointer("/0/Plan").context("no plan")?;
        let count = |name: &str| top.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        ensure!(count("Actual Rows") > 49.0, "the page is not whole: {top}");
        buffers += count("Shared Hit Blocks") + count("Shared Read Blocks");
    }
    Ok(buffers / f64::from(PLACES))
}
