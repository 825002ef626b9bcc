//! The throughput of the orchestrator, and large runs of different shapes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const RUNNERS: usize = 8;
const RUNS: usize = 10;
const TASKS_OF_EACH: usize = 500;
/// Of an account with many runs.
const MANY_RUNS: usize = 1_000;
const TASKS_OF_MANY: usize = 20;
/// The largest allowed run.
pub(super) const LARGE: usize = 10_000;

/// An orchestrator behind an edge, a user and a machine.
pub(super) struct RunFixture {
    pub(super) http: reqwest::Client,
    /// The address of the orchestrator. `edge` is that of the edge.
    pub(super) direct: String,
    pub(super) edge: String,
    pub(super) user: String,
    pub(super) machine: String,
    pub(super) orchestrator: Service,
    /// The URL of its database.
    pub(super) database: String,
    _edge: Service,
}

pub(super) fn prepare(machine: &Machine, fixture: &Fixture<'_>) -> Result<RunFixture> {
    let database = machine.database("bench_runs")?;
    let orchestrator = machine.service(
        "orchestrator",
        &[
            ("DATABASE_URL", &database),
            ("IDENTITY_RPC_URL", &fixture.identity.internal),
            ("MACHINE_REGISTRY_RPC_URL", &fixture.registry.internal),
        ],
    )?;
    let edge = machine.service_on(
        fixture.edge_port,
        "edge-proxy",
        &[
            ("IDENTITY_URL", &fixture.identity.public),
            ("MACHINE_REGISTRY_URL", &fixture.registry.public),
            ("SESSION_STORE_URL", &fixture.store.public),
            ("ORCHESTRATOR_URL", &orchestrator.public),
            ("VOICE_GATEWAY_URL", "http://127.0.0.1:9"),
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
            ("LIMIT_MACHINE", "0"),
            // The machine and the people of a row have one address here.
            ("MAX_CONNECTIONS_PER_ADDRESS", "4096"),
        ],
    )?;
    let made = fixture.call(&fixture.identity.public, "POST", "/v1/auth/tokens", json!({ "machineId": "m" }))?;
    Ok(RunFixture {
        http: reqwest::Client::builder().no_proxy().build()?,
        direct: orchestrator.public.clone(),
        edge: edge.public.clone(),
        user: fixture.token.clone(),
        machine: made.get("token").and_then(Value::as_str).context("no machine token")?.to_owned(),
        orchestrator,
        database,
        _edge: edge,
    })
}

pub(super) async fn call(http: &reqwest::Client, url: String, token: &str, body: &Value) -> Result<Value> {
    let answer = http.post(&url).bearer_auth(token).json(body).send().await?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "{url}: {status} {text:.300}");
    Ok(serde_json::from_str(&text)?)
}

pub(super) fn wanted(wait_ms: u64) -> Value {
    json!({ "machineId": "m", "providers": ["claude"], "capacity": 64, "waitMs": wait_ms })
}

pub(super) fn leases(answer: &Value) -> Vec<Value> {
    answer.get("leases").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Lease → finish with runners that do nothing.
pub(crate) fn throughput(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = Arc::new(prepare(machine, &fixture)?);
    let mut rate = Rounds::default();
    for _ in 0..options.rounds {
        rate.push(machine.runtime.block_on(one_round(&runs, RUNS, TASKS_OF_EACH))?);
    }
    report.alone(
        "runs: tasks through lease → finish, 8 runners that do nothing",
        "tasks/s",
        rate,
        Target::AtLeast(2300.0),
    );
    let mut many = Rounds::default();
    many.push(machine.runtime.block_on(one_round(&runs, MANY_RUNS, TASKS_OF_MANY))?);
    report.alone("runs: the same among 1,000 runs of 20 tasks", "tasks/s", many, Target::None);
    Ok(())
}

async fn one_round(runs: &Arc<RunFixture>, count: usize, of_each: usize) -> Result<f64> {
    let task = json!({ "prompt": "x", "provider": "claude", "dependsOn": [] });
    let run = json!({ "tasks": vec![task; of_each], "maxConcurrency": 64, "spread": true });
    for _ in 0..count {
        call(&runs.http, format!("{}/v1/orchestrator/runs", runs.direct), &runs.user, &run).await?;
    }
    let started = Instant::now();
    work(runs, count * of_each, Duration::from_secs(300)).await?;
    Ok(per_second(count * of_each, started))
}

fn per_second(tasks: usize, since: Instant) -> f64 {
    tasks as f64 / since.elapsed().as_secs_f64()
}

/// Runs of the largest size, in shapes that make tasks wait for others.
pub(crate) fn shapes(machine: &Machine, _: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = Arc::new(prepare(machine, &fixture)?);
    for (name, targets) in [
        ("a chain", chain as fn(usize) -> Vec<usize>),
        ("one before all others", fan_out),
        ("all before one", fan_in),
        ("a random graph", random),
    ] {
        let mut rate = Rounds::default();
        rate.push(machine.runtime.block_on(one_shape(&runs, targets))?);
        report.alone(&format!("runs: 10,000 tasks, {name}"), "tasks/s", rate, Target::None);
    }
    Ok(())
}

pub(super) fn chain(at: usize) -> Vec<usize> {
    at.checked_sub(1).into_iter().collect()
}

pub(super) fn fan_out(at: usize) -> Vec<usize> {
    if at == 0 { Vec::new() } else { vec![0] }
}

/// A task may have 256 dependencies, so there are two levels.
fn fan_in(at: usize) -> Vec<usize> {
    const WIDE: usize = 250;
    const FIRST: usize = LARGE - LARGE / WIDE - 1;
    match at.checked_sub(FIRST) {
        None => Vec::new(),
        Some(_) if at == LARGE - 1 => (FIRST..at).collect(),
        Some(group) => (group * WIDE..((group + 1) * WIDE).min(FIRST)).collect(),
    }
}

/// Up to four of the two hundred tasks before it. The same in every run.
fn random(at: usize) -> Vec<usize> {
    let mut state = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut targets: Vec<usize> = (0..4)
        .filter_map(|_| {
            state ^= state >> 29;
            state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
            at.checked_sub(1 + usize::try_from(state >> 40).unwrap_or(0) % 200)
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

async fn one_shape(runs: &Arc<RunFixture>, targets: fn(usize) -> Vec<usize>) -> Result<f64> {
    let run = submit_large(runs, targets).await?;
    let started = Instant::now();
    work(runs, LARGE, Duration::from_secs(600)).await?;
    let rate = per_second(LARGE, started);
    let read = call(&runs.http, format!("{run}/pend"), &runs.user, &json!({ "waitFor": "terminal" })).await?;
    let completed = read.pointer("/run/summary/completed").and_then(Value::as_u64);
    ensure!(completed == Some(10_000), "the run ended as {read}");
    Ok(rate)
}

/// Submits a run of the largest size. Returns its address.
pub(super) async fn submit_large(runs: &RunFixture, targets: fn(usize) -> Vec<usize>) -> Result<String> {
    let task = |at| {
        let names: Vec<String> = targets(at).iter().map(usize::to_string).collect();
        json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
    };
    let run = json!({ "tasks": (0..LARGE).map(task).collect::<Vec<_>>(), "maxConcurrency": 64 });
    let url = format!("{}/v1/orchestrator/runs", runs.direct);
    let made = call(&runs.http, url.clone(), &runs.user, &run).await?;
    Ok(format!("{url}/{}", made.get("id").and_then(Value::as_str).context("no id")?))
}

/// Takes and finishes this many tasks.
async fn work(runs: &Arc<RunFixture>, tasks: usize, within: Duration) -> Result<()> {
    let left = Arc::new(AtomicUsize::new(tasks));
    let deadline = Instant::now() + within;
    let runners: Vec<_> =
        (0..RUNNERS).map(|_| tokio::spawn(idle_runner(Arc::clone(runs), Arc::clone(&left), deadline))).collect();
    for runner in runners {
        runner.await??;
    }
    Ok(())
}

async fn idle_runner(runs: Arc<RunFixture>, left: Arc<AtomicUsize>, deadline: Instant) -> Result<()> {
    while left.load(SeqCst) > 0 {
        ensure!(Instant::now() < deadline, "{} tasks are left when the time is up", left.load(SeqCst));
        let answer =
            call(&runs.http, format!("{}/v1/orchestrator/leases", runs.direct), &runs.machine, &wanted(200)).await?;
        let finishes = leases(&answer).into_iter().map(|lease| {
            let runs = Arc::clone(&runs);
            tokio::spawn(async move { finish(&runs, &lease).await })
        });
        for finished in finishes.collect::<Vec<_>>() {
            finished.await??;
            left.fetch_sub(1, SeqCst);
        }
    }
    Ok(())
}

pub(super) async fn finish(runs: &RunFixture, lease: &Value) -> Result<()> {
    let id = lease.get("id").and_then(Value::as_str).context("no lease id")?;
    let body = json!({ "fence": lease.get("fence"), "status": "completed", "exitCode": 0 });
    call(&runs.http, format!("{}/v1/orchestrator/leases/{id}/finish", runs.direct), &runs.machine, &body)
        .await
        .map(drop)
}
