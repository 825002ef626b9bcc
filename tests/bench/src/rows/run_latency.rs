//! The latency of the orchestrator: from a submission to a waiting runner, and from a change to its watchers. Measured
//! through the edge, while runs arrive and complete at a steady rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::Events;
use serde_json::{Value, json};

use super::fixture::Fixture;
use super::runs::{RunFixture, call, finish, leases, prepare, wanted};
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// New runs per second: a tenth of the required throughput.
const RATE: u64 = 100;
/// Additional runs per second whose end is watched.
const WATCHED_RATE: u64 = 20;
const WAITING_RUNNERS: usize = 4;
const SOON: Duration = Duration::from_secs(20);

/// All in milliseconds.
#[derive(Default)]
struct Figures {
    /// From the submission of a run to the arrival of its task at a waiting runner.
    leases: Vec<f64>,
    /// From a cancellation to the response of a pend, and to the event of a stream.
    pends: Vec<f64>,
    events: Vec<f64>,
}

pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = Arc::new(prepare(machine, &fixture)?);
    let names = [
        "submitted → with a waiting runner, 100/s, through the edge",
        "cancelled → pend answered, meanwhile",
        "cancelled → event of the stream, meanwhile",
    ];
    let bounds = [(5.0, 12.0), (10.0, 50.0), (10.0, 50.0)];
    let mut rounds = names.map(|_| (Rounds::default(), Rounds::default()));
    for _ in 0..options.rounds {
        let figures = machine.runtime.block_on(one_round(&runs, options.round))?;
        for ((median, tail), values) in rounds.iter_mut().zip([figures.leases, figures.pends, figures.events]) {
            median.push(percentile(&values, 50)?);
            tail.push(percentile(&values, 99)?);
        }
    }
    for ((name, (median, tail)), (most, late)) in names.into_iter().zip(rounds).zip(bounds) {
        report.alone(&format!("runs: {name}, p50"), "ms", median, Target::AtMost(most));
        report.alone(&format!("runs: {name}, p99"), "ms", tail, Target::AtMost(late));
    }
    Ok(())
}

async fn one_round(runs: &Arc<RunFixture>, time: Duration) -> Result<Figures> {
    let arrived: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let end = Instant::now() + time;
    let runner = |_| tokio::spawn(waiting_runner(Arc::clone(runs), Arc::clone(&arrived), end));
    let waiting: Vec<_> = (0..WAITING_RUNNERS).map(runner).collect();
    let submitting = at_rate(RATE, end, || submit(Arc::clone(runs)));
    let watching = at_rate(WATCHED_RATE, end, || watch(Arc::clone(runs)));
    let (submitted, watched) = tokio::join!(submitting, watching);
    let (submitted, watched) = (submitted?, watched?);
    for runner in waiting {
        runner.await??;
    }
    let arrived = arrived.lock().map_err(|_| anyhow::anyhow!("a runner panicked"))?;
    let leases: Vec<f64> =
        submitted.iter().filter_map(|(task, sent)| Some(millis(*arrived.get(task)? - *sent))).collect();
    ensure!(leases.len() == submitted.len(), "{} of {} tasks reached a runner", leases.len(), submitted.len());
    let (pends, events) = watched.into_iter().unzip();
    Ok(Figures { leases, pends, events })
}

/// Starts this many calls a second until `end`, and returns all results. A slow call does not delay the next one.
async fn at_rate<T, F>(rate: u64, end: Instant, begin: impl Fn() -> F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut tick = tokio::time::interval(Duration::from_millis(1000 / rate));
    let mut begun = Vec::new();
    while Instant::now() < end {
        tick.tick().await;
        begun.push(tokio::spawn(begin()));
    }
    let mut all = Vec::with_capacity(begun.len());
    for one in begun {
        all.push(one.await??);
    }
    Ok(all)
}

/// Submits a run. Returns its task and the time of the submission.
async fn submit(runs: Arc<RunFixture>) -> Result<(String, Instant)> {
    let sent = Instant::now();
    let made = new_run(&runs, "claude").await?;
    Ok((made.pointer("/tasks/0/id").and_then(Value::as_str).context("no task")?.to_owned(), sent))
}

async fn new_run(runs: &RunFixture, provider: &str) -> Result<Value> {
    let run = json!({ "tasks": [{ "prompt": "x", "provider": provider, "dependsOn": [] }] });
    call(&runs.http, format!("{}/v1/orchestrator/runs", runs.edge), &runs.user, &run).await
}

/// Takes and finishes leases until `end`, and then the remaining ones.
async fn waiting_runner(
    runs: Arc<RunFixture>,
    arrived: Arc<Mutex<HashMap<String, Instant>>>,
    end: Instant,
) -> Result<()> {
    let mut finishing = Vec::new();
    loop {
        let over = Instant::now() >= end;
        let answer =
            call(&runs.http, format!("{}/v1/orchestrator/leases", runs.edge), &runs.machine, &wanted(500)).await?;
        let (now, leases) = (Instant::now(), leases(&answer));
        if over && leases.is_empty() {
            break;
        }
        for lease in leases {
            if let (Some(task), Ok(mut arrived)) = (lease.get("taskId").and_then(Value::as_str), arrived.lock()) {
                arrived.insert(task.to_owned(), now);
            }
            let runs = Arc::clone(&runs);
            finishing.push(tokio::spawn(async move { finish(&runs, &lease).await }));
        }
    }
    for finished in finishing {
        finished.await??;
    }
    Ok(())
}

/// Cancels a run that no runner takes, while a pend and a stream wait for its end.
async fn watch(runs: Arc<RunFixture>) -> Result<(f64, f64)> {
    let made = new_run(&runs, "gemini").await?;
    let id = made.get("id").and_then(Value::as_str).context("no id")?;
    let url = format!("{}/v1/orchestrator/runs/{id}", runs.edge);
    let stream = runs.http.get(format!("{url}/events")).bearer_auth(&runs.user);
    let mut events = Events::try_open(stream).await.context("no stream")?;
    next(&mut events).await?;
    let (http, token, pend) = (runs.http.clone(), runs.user.clone(), format!("{url}/pend"));
    let pending = tokio::spawn(async move {
        let answer = call(&http, pend, &token, &json!({ "waitFor": "terminal", "timeoutMs": 20_000 })).await;
        answer.map(|_| Instant::now())
    });
    let reading = tokio::spawn(async move { next(&mut events).await.map(|()| Instant::now()) });
    // Gives the pend time to arrive before the cancellation. Its arrival cannot be observed; a late pend only makes the
    // figure smaller.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let sent = Instant::now();
    call(&runs.http, format!("{url}/cancel"), &runs.user, &json!({})).await?;
    Ok((millis(pending.await?? - sent), millis(reading.await?? - sent)))
}

async fn next(events: &mut Events) -> Result<()> {
    let event = events.next_within(SOON).await.map_err(anyhow::Error::msg)?.context("the stream has ended")?;
    ensure!(event.name == "change", "an event {event:?}");
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn percentile(values: &[f64], percent: usize) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().context("nothing was measured")
}
