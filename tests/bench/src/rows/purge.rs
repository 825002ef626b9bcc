//! Appends while a million old messages are removed because their retention is over, compared with appends without a purge.

use anyhow::{Context, Result, ensure};

use super::fixture::Fixture;
use crate::load::wrk;
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const SESSIONS: usize = 500;
const OF_EACH: usize = 2_000;
const CLIENTS: u32 = 4;

pub(crate) fn during_appends(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::with(machine, &[("SESSION_RETENTION_DAYS", "1"), ("PURGE_MS", "1000")])?;
    let url = &fixture.store_database;
    let old = fixture.sessions(SESSIONS)?;
    let new = fixture.sessions(16)?.join(",");
    let first = old.first().context("no session")?;
    fixture.fill(first, 1, 1024)?;
    let ids = old.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",");
    machine.sql(
        url,
        &format!(
            "INSERT INTO messages (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at) \
             SELECT s.id, n, gen_random_uuid(), m.sender_id, 'old-' || n, m.content, m.key_epoch, m.created_at \
             FROM sessions s, generate_series(2, {OF_EACH} + 1) n, messages m \
             WHERE s.id IN ({ids}) AND m.session_id = '{first}' AND m.seq = 1; \
             UPDATE sessions SET last_seq = {OF_EACH} + 1 WHERE id IN ({ids})"
        ),
    )?;
    machine.sql(url, "VACUUM ANALYZE")?;
    let p99 = |run: &str, round: usize| {
        let run = format!("{run}-{round}");
        let env = [("TOKEN", fixture.token.as_str()), ("SESSIONS", new.as_str()), ("RUN", run.as_str())];
        Ok::<_, anyhow::Error>(wrk(&fixture.store.public, CLIENTS, options.round, "append.lua", &env)?.p99_ms)
    };
    let left = || {
        let count = format!("SELECT count(*)::text FROM messages WHERE session_id IN ({ids})");
        Ok::<u64, anyhow::Error>(machine.rows(url, &count)?.into_iter().flatten().next().context("no count")?.parse()?)
    };
    let (mut quiet, mut purging) = (Rounds::default(), Rounds::default());
    for round in 0..options.rounds {
        quiet.push(p99("quiet", round)?);
    }
    let all = left()?;
    machine.sql(
        url,
        &format!("UPDATE sessions SET archived = true, updated_at = now() - interval '2 days' WHERE id IN ({ids})"),
    )?;
    let asked = std::time::Instant::now();
    while left()? >= all {
        ensure!(asked.elapsed() < std::time::Duration::from_secs(120), "the purge has not begun within two minutes");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let began = (std::time::Instant::now(), left()?);
    for round in 0..options.rounds {
        purging.push(p99("purging", round)?);
        ensure!(left()? > 0, "the purge was over in round {round}: fewer or shorter rounds are needed");
    }
    let mut speed = Rounds::default();
    speed.push((began.1 - left()?) as f64 / began.0.elapsed().as_secs_f64());
    report.versus(
        &format!("append p99, {CLIENTS} clients, while {all} old messages are removed"),
        "ms",
        purging,
        ("the same before it", quiet),
        Target::AtMost(2.0),
    );
    report.alone("old messages removed meanwhile", "msg/s", speed, Target::None);
    Ok(())
}
