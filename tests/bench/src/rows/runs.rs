//! The orchestrator: how many tasks go through, and how soon one reaches a runner that waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::world::World;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const RUNNERS: usize = 8;
const RUNS: usize = 10;
const TASKS_OF_EACH: usize = 500;
/// New runs per second while latencies are taken: a tenth of what has to go through.
const RATE: u64 = 100;

struct Field {
    http: reqwest::Client,
    /// The orchestrator itself, and the same through the edge.
    direct: String,
    edge: String,
    user: String,
    machine: String,
    _services: [Service; 2],
}

fn prepare(machine: &Machine, world: &World<'_>) -> Result<Field> {
    let orchestrator = machine.service(
        "orchestrator",
        &[
            ("DATABASE_URL", &machine.database("bench_runs")?),
            ("IDENTITY_RPC_URL", &world.identity.internal),
            ("MACHINE_REGISTRY_RPC_URL", &world.registry.internal),
        ],
    )?;
    let edge = machine.service(
        "edge-proxy",
        &[
            ("IDENTITY_URL", &world.identity.public),
            ("MACHINE_REGISTRY_URL", &world.registry.public),
            ("SESSION_STORE_URL", &world.store.public),
            ("ORCHESTRATOR_URL", &orchestrator.public),
            ("VOICE_GATEWAY_URL", "http://127.0.0.1:9"),
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
            ("LIMIT_MACHINE", "0"),
        ],
    )?;
    let made = world.call(&world.identity.public, "POST", "/v1/auth/tokens", json!({ "machineId": "m" }))?;
    Ok(Field {
        http: reqwest::Client::builder().no_proxy().build()?,
        direct: orchestrator.public.clone(),
        edge: edge.public.clone(),
        user: world.token.clone(),
        machine: made.get("token").and_then(Value::as_str).context("no machine token")?.to_owned(),
        _services: [orchestrator, edge],
    })
}

async fn call(http: &reqwest::Client, url: String, token: &str, body: &Value) -> Result<Value> {
    let answer = http.post(&url).bearer_auth(token).json(body).send().await?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "{url}: {status} {text:.300}");
    Ok(serde_json::from_str(&text)?)
}

fn wanted(wait_ms: u64) -> Value {
    json!({ "machineId": "m", "providers": ["claude"], "capacity": 64, "waitMs": wait_ms })
}

fn leases(answer: &Value) -> Vec<Value> {
    answer.get("leases").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Lease → finish with runners that do nothing.
pub(crate) fn throughput(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let world = World::start(machine)?;
    let field = Arc::new(prepare(machine, &world)?);
    let mut rate = Rounds::default();
    for _ in 0..options.rounds {
        rate.push(machine.runtime.block_on(one_round(&field))?);
    }
    report.alone(
        "runs: tasks through lease → finish, 8 runners that do nothing",
        "tasks/s",
        rate,
        Target::AtLeast(1000.0),
    );
    Ok(())
}

async fn one_round(field: &Arc<Field>) -> Result<f64> {
    let task = json!({ "prompt": "x", "provider": "claude", "dependsOn": [] });
    let run = json!({ "tasks": vec![task; TASKS_OF_EACH], "maxConcurrency": 64, "spread": true });
    for _ in 0..RUNS {
        call(&field.http, format!("{}/v1/orchestrator/runs", field.direct), &field.user, &run).await?;
    }
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(RUNS * TASKS_OF_EACH));
    let started = Instant::now();
    let runners: Vec<_> =
        (0..RUNNERS).map(|_| tokio::spawn(idle_runner(Arc::clone(field), Arc::clone(&left)))).collect();
    for runner in runners {
        runner.await??;
    }
    Ok(f64::from(u32::try_from(RUNS * TASKS_OF_EACH)?) / started.elapsed().as_secs_f64())
}

async fn idle_runner(field: Arc<Field>, left: Arc<std::sync::atomic::AtomicUsize>) -> Result<()> {
    use std::sync::atomic::Ordering::SeqCst;
    let started = Instant::now();
    while left.load(SeqCst) > 0 {
        ensure!(started.elapsed() < Duration::from_secs(120), "{} tasks are left after 2 minutes", left.load(SeqCst));
        let answer =
            call(&field.http, format!("{}/v1/orchestrator/leases", field.direct), &field.machine, &wanted(200)).await?;
        let finishes = leases(&answer).into_iter().map(|lease| {
            let field = Arc::clone(&field);
            tokio::spawn(async move { finish(&field, &lease).await })
        });
        for finished in finishes.collect::<Vec<_>>() {
            finished.await??;
            left.fetch_sub(1, SeqCst);
        }
    }
    Ok(())
}

async fn finish(field: &Field, lease: &Value) -> Result<()> {
    let id = lease.get("id").and_then(Value::as_str).context("no lease id")?;
    let body = json!({ "fence": lease.get("fence"), "status": "completed", "exitCode": 0 });
    call(&field.http, format!("{}/v1/orchestrator/leases/{id}/finish", field.direct), &field.machine, &body)
        .await
        .map(drop)
}

/// From sending a run to its task's arrival at a runner that was waiting, both through the edge; and from sending a
/// cancel to the answer of a pend.
pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let world = World::start(machine)?;
    let field = Arc::new(prepare(machine, &world)?);
    let mut figures = [Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..options.rounds {
        let (arrivals, pends) = machine.runtime.block_on(latencies(&field, options.round))?;
        for (figure, value) in
            figures.iter_mut().zip([at(&arrivals, 50)?, at(&arrivals, 99)?, at(&pends, 50)?, at(&pends, 99)?])
        {
            figure.push(value);
        }
    }
    let [run_median, run_tail, pend_median, pend_tail] = figures;
    report.alone(
        "runs: submitted → with a waiting runner, p50, 100/s, through the edge",
        "ms",
        run_median,
        Target::AtMost(10.0),
    );
    report.alone("runs: the same, p99", "ms", run_tail, Target::AtMost(50.0));
    report.alone("runs: cancelled → pend answered, p50", "ms", pend_median, Target::AtMost(10.0));
    report.alone("runs: the same, p99", "ms", pend_tail, Target::AtMost(50.0));
    Ok(())
}

async fn latencies(field: &Arc<Field>, time: Duration) -> Result<(Vec<f64>, Vec<f64>)> {
    let arrived: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let stop = Instant::now() + time + Duration::from_secs(1);
    let waiting: Vec<_> =
        (0..4).map(|_| tokio::spawn(waiting_runner(Arc::clone(field), Arc::clone(&arrived), stop))).collect();
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "dependsOn": [] }] });
    let mut tick = tokio::time::interval(Duration::from_millis(1000 / RATE));
    let mut submitting = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        tick.tick().await;
        let (field, run) = (Arc::clone(field), run.clone());
        submitting.push(tokio::spawn(async move {
            let sent = Instant::now();
            let made = call(&field.http, format!("{}/v1/orchestrator/runs", field.edge), &field.user, &run).await?;
            let task = made.pointer("/tasks/0/id").and_then(Value::as_str).context("no task")?.to_owned();
            anyhow::Ok((task, sent))
        }));
    }
    let mut sent = Vec::new();
    for submitted in submitting {
        sent.push(submitted.await??);
    }
    for runner in waiting {
        runner.await??;
    }
    let arrived = arrived.lock().map_err(|_| anyhow::anyhow!("a runner panicked"))?.clone();
    let took = sent
        .iter()
        .filter_map(|(task, sent)| Some((*arrived.get(task)? - *sent).as_secs_f64() * 1e3))
        .collect::<Vec<_>>();
    ensure!(took.len() * 100 >= sent.len() * 99, "{} of {} tasks reached a runner", took.len(), sent.len());
    let mut pends = Vec::new();
    for _ in 0..50 {
        pends.push(one_pend(field).await?);
    }
    Ok((took, pends))
}

async fn waiting_runner(field: Arc<Field>, arrived: Arc<Mutex<HashMap<String, Instant>>>, stop: Instant) -> Result<()> {
    while Instant::now() < stop {
        let answer =
            call(&field.http, format!("{}/v1/orchestrator/leases", field.edge), &field.machine, &wanted(500)).await?;
        let now = Instant::now();
        for lease in leases(&answer) {
            if let (Some(task), Ok(mut arrived)) = (lease.get("taskId").and_then(Value::as_str), arrived.lock()) {
                arrived.insert(task.to_owned(), now);
            }
            let field = Arc::clone(&field);
            tokio::spawn(async move { finish(&field, &lease).await });
        }
    }
    Ok(())
}

async fn one_pend(field: &Field) -> Result<f64> {
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "gemini", "dependsOn": [] }] });
    let made = call(&field.http, format!("{}/v1/orchestrator/runs", field.edge), &field.user, &run).await?;
    let url =
        format!("{}/v1/orchestrator/runs/{}", field.edge, made.get("id").and_then(Value::as_str).context("no id")?);
    let (http, token, pend) = (field.http.clone(), field.user.clone(), format!("{url}/pend"));
    let waiting = tokio::spawn(async move {
        let answer = call(&http, pend, &token, &json!({ "waitFor": "terminal", "timeoutMs": 20_000 })).await;
        answer.map(|_| Instant::now())
    });
    // The pend should wait before the cancel is sent; when it does not yet, the figure only gets better by nothing.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let sent = Instant::now();
    call(&field.http, format!("{url}/cancel"), &field.user, &json!({})).await?;
    Ok((waiting.await?? - sent).as_secs_f64() * 1e3)
}

fn at(values: &[f64], percent: usize) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .context("nothing was measured")
}
