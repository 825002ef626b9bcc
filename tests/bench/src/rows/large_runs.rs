//! Changes that concern all tasks of the largest run, and the memory of the orchestrator while it takes and gives the largest
//! outputs and runs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fixture::Fixture;
use super::runs::{LARGE, RunFixture, call, chain, fan_out, leases, prepare, submit_large, wanted};
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const PIECE: usize = 512 * 1024;
/// Pieces of output: all that is stored and some more, and then 90 MiB.
const FIRST: usize = 20;
const PIECES: usize = 200;
const READERS: usize = 2;
/// For a change to reach all tasks.
const LONGEST: Duration = Duration::from_secs(120);

/// How a change reaches the service.
#[derive(Clone, Copy)]
enum Change {
    /// The first task ends so.
    Finish(&'static str),
    /// Of the owner.
    Act(&'static str),
}

/// The name of a change, what it is, and the state of all tasks but the first afterwards.
type Named = (&'static str, Change, &'static str);

const CHAIN: [Named; 1] = [("a failure at the head of a chain", Change::Finish("failed"), "dependency_failed")];
const WIDE: [Named; 4] = [
    ("a success before all others", Change::Finish("completed"), "queued"),
    ("a cancel", Change::Act("cancel"), "cancelled"),
    ("a retry", Change::Act("retry"), "queued"),
    ("a cancel after a retry", Change::Act("cancel"), "cancelled"),
];

pub(crate) fn changes(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = prepare(machine, &fixture)?;
    for (targets, all) in [(chain as fn(usize) -> Vec<usize>, &CHAIN[..]), (fan_out, &WIDE[..])] {
        let mut figures: Vec<_> = all.iter().map(|named| (named.0, Rounds::default(), Rounds::default())).collect();
        for _ in 0..options.rounds {
            let run = machine.runtime.block_on(submit_large(&runs, targets))?;
            for ((_, answers, ends), named) in figures.iter_mut().zip(all) {
                let (answered, ended) = measure(machine, &runs, &run, *named)?;
                answers.push(answered.as_secs_f64() * 1e3);
                ends.push(ended.as_secs_f64());
            }
        }
        for (name, answers, ends) in figures {
            report.alone(&format!("runs: 10,000 tasks, {name}, answered"), "ms", answers, Target::AtMost(500.0));
            report.alone(&format!("runs: 10,000 tasks, {name}, in every task"), "s", ends, Target::AtMost(10.0));
        }
    }
    Ok(())
}

/// How long a change takes until it is answered, and until every task has it.
fn measure(machine: &Machine, runs: &RunFixture, run: &str, named: Named) -> Result<(Duration, Duration)> {
    let (name, change, state) = named;
    let id = run.rsplit('/').next().context("no id")?;
    let count = format!(
        "SELECT count(*)::text FROM tasks t JOIN runs r ON r.id = t.run_id WHERE r.id = '{id}' AND NOT r.unsettled \
         AND t.status = '{state}'"
    );
    let lease = match change {
        Change::Finish(_) => Some(machine.runtime.block_on(lease(runs))?),
        Change::Act(_) => None,
    };
    let began = Instant::now();
    let answered = machine.runtime.block_on(make(runs, run, change, lease.as_ref()))?;
    loop {
        let changed = machine.rows(&runs.database, &count)?.into_iter().flatten().next().context("no count")?;
        if changed.parse::<usize>()? >= LARGE - 1 {
            return Ok((answered, began.elapsed()));
        }
        ensure!(began.elapsed() < LONGEST, "{name}: {changed} tasks are {state}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn lease(runs: &RunFixture) -> Result<Value> {
    let url = format!("{}/v1/orchestrator/leases", runs.direct);
    let answer = call(&runs.http, url, &runs.machine, &wanted(10_000)).await?;
    leases(&answer).into_iter().next().context("no lease")
}

/// How long it takes until it is answered, without the time to read the answer, which can have all tasks of the run.
async fn make(runs: &RunFixture, run: &str, change: Change, lease: Option<&Value>) -> Result<Duration> {
    let (url, token, body) = match change {
        Change::Act(what) => (format!("{run}/{what}"), &runs.user, json!({})),
        Change::Finish(status) => {
            let lease = lease.context("no lease")?;
            let id = lease.get("id").and_then(Value::as_str).context("no lease id")?;
            let url = format!("{}/v1/orchestrator/leases/{id}/finish", runs.direct);
            (url, &runs.machine, json!({ "fence": lease.get("fence"), "status": status }))
        }
    };
    let sent = Instant::now();
    let answer = runs.http.post(&url).bearer_auth(token).json(&body).send().await?.error_for_status()?;
    let answered = sent.elapsed();
    answer.bytes().await?;
    Ok(answered)
}

pub(crate) fn memory(machine: &Machine, _: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = prepare(machine, &fixture)?;
    let (growth, read) = machine.runtime.block_on(async {
        let task = json!({ "tasks": [{ "prompt": "x", "provider": "claude" }] });
        call(&runs.http, format!("{}/v1/orchestrator/runs", runs.direct), &runs.user, &task).await?;
        let lease = lease(&runs).await?;
        send(&runs, &lease, 0..FIRST).await?;
        let growth = growth_while(&runs, send(&runs, &lease, FIRST..PIECES)).await?;
        make(&runs, "", Change::Finish("completed"), Some(&lease)).await?;
        let run = submit_large(&runs, |_| Vec::new()).await?;
        Ok::<_, anyhow::Error>((growth, run))
    })?;
    // Set in the database, because 10,000 reports would take minutes.
    machine.sql(
        &runs.database,
        "UPDATE task_specs SET prompt = repeat('p', 65536) WHERE task_id IN (SELECT id FROM tasks WHERE position < 1000); \
         UPDATE tasks SET output_summary = repeat('s', 16384)",
    )?;
    let reading = machine.runtime.block_on(async {
        let all = async {
            let mut readers = JoinSet::new();
            for _ in 0..READERS {
                readers.spawn(skim(runs.http.get(&read).bearer_auth(&runs.user)));
            }
            while let Some(length) = readers.join_next().await {
                let length = length??;
                ensure!(length > 1_000 * 65_536 + LARGE * 16_384, "{length} bytes were read");
            }
            Ok(())
        };
        growth_while(&runs, all).await
    })?;
    for (name, growth, most) in [
        ("runs: memory over 90 MiB of output beyond what is stored", growth, 24.0),
        ("runs: memory while two read the largest run of 230 MiB", reading, 160.0),
    ] {
        let mut rounds = Rounds::default();
        rounds.push(growth);
        report.alone(name, "MiB", rounds, Target::AtMost(most));
    }
    Ok(())
}

async fn send(runs: &RunFixture, lease: &Value, pieces: std::ops::Range<usize>) -> Result<()> {
    let id = lease.get("id").and_then(Value::as_str).context("no lease id")?;
    let url = format!("{}/v1/orchestrator/leases/{id}/output", runs.direct);
    let data = "0123456789abcde\n".repeat(PIECE / 16);
    for at in pieces {
        let body = json!({ "fence": lease.get("fence"), "offset": at * PIECE, "data": data });
        call(&runs.http, url.clone(), &runs.machine, &body).await?;
    }
    Ok(())
}

/// Reads a response to its end and returns its length.
async fn skim(request: reqwest::RequestBuilder) -> Result<usize> {
    let mut answer = request.send().await?.error_for_status()?;
    let mut length = 0;
    while let Some(chunk) = answer.chunk().await? {
        length += chunk.len();
    }
    Ok(length)
}

/// By how many MiB the orchestrator grows while something is done.
async fn growth_while(runs: &RunFixture, what: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = runs.orchestrator.resident_mib()?;
    let (mut what, mut most) = (std::pin::pin!(what), before);
    let mut sample = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            done = &mut what => {
                done?;
                return Ok(most.max(runs.orchestrator.resident_mib()?) - before);
            }
            _ = sample.tick() => most = most.max(runs.orchestrator.resident_mib()?),
        }
    }
}
