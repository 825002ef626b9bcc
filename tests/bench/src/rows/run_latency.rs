//! The orchestrator: how soon a task reaches a runner that waits, and how soon a change reaches those who wait for it. All
//! of it through the edge, and while new runs come and are done at a steady rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::Events;
use serde_json::{Value, json};

use super::runs::{Field, call, finish, leases, prepare, wanted};
use super::world::World;
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// New runs per second: a tenth of what has to go through.
const RATE: u64 = 100;
/// Runs per second whose end somebody waits for, beside the others.
const WATCHED_RATE: u64 = 20;
const WAITING_RUNNERS: usize = 4;
const SOON: Duration = Duration::from_secs(20);

/// Milliseconds each.
#[derive(Default)]
struct Figures {
    /// From sending a run to its task's arrival at a runner that was waiting.
    leases: Vec<f64>,
    /// From sending a cancel to the answer of a pend, and to the event of a stream.
    pends: Vec<f64>,
    events: Vec<f64>,
}

pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let world = World::start(machine)?;
    let field = Arc::new(prepare(machine, &world)?);
    let names = [
        "submitted → with a waiting runner, 100/s, through the edge",
        "cancelled → pend answered, meanwhile",
        "cancelled → told by the event stream, meanwhile",
    ];
    let mut rounds = names.map(|_| (Rounds::default(), Rounds::default()));
    for _ in 0..options.rounds {
        let figures = machine.runtime.block_on(one_round(&field, options.round))?;
        for ((median, tail), values) in rounds.iter_mut().zip([figures.leases, figures.pends, figures.events]) {
            median.push(percentile(&values, 50)?);
            tail.push(percentile(&values, 99)?);
        }
    }
    for (name, (median, tail)) in names.into_iter().zip(rounds) {
        report.alone(&format!("runs: {name}, p50"), "ms", median, Target::AtMost(10.0));
        report.alone("runs: the same, p99", "ms", tail, Target::AtMost(50.0));
    }
    Ok(())
}

async fn one_round(field: &Arc<Field>, time: Duration) -> Result<Figures> {
    let arrived: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let end = Instant::now() + time;
    let runner = |_| tokio::spawn(waiting_runner(Arc::clone(field), Arc::clone(&arrived), end));
    let waiting: Vec<_> = (0..WAITING_RUNNERS).map(runner).collect();
    let submitting = at_rate(RATE, end, || submit(Arc::clone(field)));
    let watching = at_rate(WATCHED_RATE, end, || watch(Arc::clone(field)));
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

/// Begins something so often a second until `end`, however long each takes, and gives what all came to.
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

/// The task of a new run, and when it was sent.
async fn submit(field: Arc<Field>) -> Result<(String, Instant)> {
    let sent = Instant::now();
    let made = new_run(&field, "claude").await?;
    Ok((made.pointer("/tasks/0/id").and_then(Value::as_str).context("no task")?.to_owned(), sent))
}

async fn new_run(field: &Field, provider: &str) -> Result<Value> {
    let run = json!({ "tasks": [{ "prompt": "x", "provider": provider, "dependsOn": [] }] });
    call(&field.http, format!("{}/v1/orchestrator/runs", field.edge), &field.user, &run).await
}

/// Takes and finishes until `end`, and then what is still there.
async fn waiting_runner(field: Arc<Field>, arrived: Arc<Mutex<HashMap<String, Instant>>>, end: Instant) -> Result<()> {
    let mut finishing = Vec::new();
    loop {
        let over = Instant::now() >= end;
        let answer =
            call(&field.http, format!("{}/v1/orchestrator/leases", field.edge), &field.machine, &wanted(500)).await?;
        let (now, leases) = (Instant::now(), leases(&answer));
        if over && leases.is_empty() {
            break;
        }
        for lease in leases {
            if let (Some(task), Ok(mut arrived)) = (lease.get("taskId").and_then(Value::as_str), arrived.lock()) {
                arrived.insert(task.to_owned(), now);
            }
            let field = Arc::clone(&field);
            finishing.push(tokio::spawn(async move { finish(&field, &lease).await }));
        }
    }
    for finished in finishing {
        finished.await??;
    }
    Ok(())
}

/// A run that no runner takes is cancelled, and so ends, while a pend and a stream wait for it.
async fn watch(field: Arc<Field>) -> Result<(f64, f64)> {
    let made = new_run(&field, "gemini").await?;
    let id = made.get("id").and_then(Value::as_str).context("no id")?;
    let url = format!("{}/v1/orchestrator/runs/{id}", field.edge);
    let stream = field.http.get(format!("{url}/events")).bearer_auth(&field.user);
    let mut events = Events::try_open(stream).await.context("no stream")?;
    next(&mut events).await?;
    let (http, token, pend) = (field.http.clone(), field.user.clone(), format!("{url}/pend"));
    let pending = tokio::spawn(async move {
        let answer = call(&http, pend, &token, &json!({ "waitFor": "terminal", "timeoutMs": 20_000 })).await;
        answer.map(|_| Instant::now())
    });
    let reading = tokio::spawn(async move { next(&mut events).await.map(|()| Instant::now()) });
    // The pend should wait before the cancel is sent; when it does not yet, the figure only gets better by nothing.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let sent = Instant::now();
    call(&field.http, format!("{url}/cancel"), &field.user, &json!({})).await?;
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

fn percentile(values: &[f64], percent: usize) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().context("nothing was measured")
}
