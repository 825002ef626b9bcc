//! A PostgreSQL that writes down how it has run each statement (postgresql.org/docs/current/auto-explain.html), so that a test can
//! hold how many rows an operation reads, and how much it adds to the write-ahead log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::OnceLock;

use anyhow::Result;
use serde_json::Value;
use tokio_postgres::NoTls;

use crate::postgres::{self, Cluster};

/// The last five have it choose the same plans each time, and those of large tables.
const SETTINGS: [&str; 15] = [
    "shared_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_analyze=on",
    "auto_explain.log_timing=off",
    "auto_explain.log_wal=on",
    "auto_explain.log_nested_statements=on",
    "auto_explain.log_format=json",
    "log_min_messages=log",
    "log_line_prefix=%d ",
    "lc_messages=C",
    "autovacuum=off",
    "enable_seqscan=off",
    "jit=off",
    "plan_cache_mode=force_custom_plan",
    "max_parallel_workers_per_gather=0",
];

tokio::task_local! {
    static ASKED_FOR: ();
}

/// What a database has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Rows of tables that were looked at, also those that a condition then removed.
    pub(crate) rows: u64,
    /// Bytes of the write-ahead log.
    pub(crate) wal: u64,
}

/// Has each [`crate::TestDatabase`] on PostgreSQL that `making` makes be one of such a server: for [`crate::Costs`].
pub async fn explained<T>(making: impl Future<Output = T>) -> T {
    ASKED_FOR.scope((), making).await
}

/// The URL of the server for a test database that is made now. Blocks while the server starts.
pub(crate) fn choose_server() -> fn() -> Result<String> {
    if ASKED_FOR.try_with(|()| ()).is_ok() { || Ok(server()?.url("postgres")) } else { postgres::shared_url }
}

/// Has a database of such a server keep all versions of its rows as long as this runtime lasts. Else an update sometimes finds a full
/// page, and what it cleans up there goes to the write-ahead log, too.
pub(crate) async fn keep_versions(url: &str) -> Result<()> {
    if ASKED_FOR.try_with(|()| ()).is_ok() {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?;
        tokio::spawn(async move {
            let _open = client;
            std::future::pending::<()>().await;
        });
    }
    Ok(())
}

fn server() -> Result<&'static Cluster> {
    static SERVER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    postgres::of_this_process(&SERVER, &SETTINGS)
}

/// Where the server's log ends now.
pub(crate) fn end_of_log() -> Result<u64> {
    Ok(std::fs::metadata(server()?.log())?.len())
}

/// What this database has done since the log ended there.
pub(crate) fn work_since(end: u64, url: &str) -> Result<Work> {
    let mut log = File::open(server()?.log())?;
    log.seek(SeekFrom::Start(end))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let database = url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap_or_default();
    let head = format!("{database} LOG:  duration: ");
    let mut lines = text.lines().peekable();
    let mut work = Work::default();
    while let Some(line) = lines.next() {
        let mut plan = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            plan.push_str(line);
        }
        // One that is being written is not of an operation that has ended.
        if line.starts_with(&head)
            && let Ok(run) = serde_json::from_str::<Value>(&plan)
            && let Some(plan) = run.get("Plan")
        {
            work.rows += rows(plan);
            work.wal += number(plan, "WAL Bytes");
        }
    }
    Ok(work)
}

/// The rows that a part of a plan, and the parts under it, have read from tables.
fn rows(plan: &Value) -> u64 {
    let is_scan = plan.get("Relation Name").is_some() && plan.get("Operation").is_none();
    let read = ["Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"];
    let read: u64 = read.iter().map(|name| number(plan, name)).sum();
    let own = if is_scan { read * number(plan, "Actual Loops") } else { 0 };
    let parts = plan.get("Plans").and_then(Value::as_array);
    own + parts.into_iter().flatten().map(rows).sum::<u64>()
}

/// PostgreSQL 18 writes rows as fractions, because they are averages of the loops.
fn number(plan: &Value, name: &str) -> u64 {
    plan.get(name).and_then(Value::as_f64).map_or(0, |number| number.round() as u64)
}
