//! What one account notices while another one sends the worst that its bounds allow, as fast as its limits let it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{Fixture, sign_in};
use super::held::unread;
use super::runs::call;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// How often the honest caller calls each of its routes.
const PAUSE: Duration = Duration::from_millis(50);
const BAD_CONNECTIONS: usize = 4;
/// Requests for pages of 4 MiB that the bad caller sends at once, of each kind, and does not read.
const UNREAD_PAGES: usize = 115;
const UNREAD_FOR: Duration = Duration::from_secs(2);
/// The bound of the honest caller's p99, or three times its undisturbed value where that is more.
const P99_MS: f64 = 50.0;
const LATEST_HEARTBEAT_MS: f64 = 5_000.0;

struct Honest {
    http: reqwest::Client,
    edge: String,
    user: String,
    machine: String,
    session: String,
    lease: Value,
}

pub(crate) fn other_account(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let rpc = [
        ("IDENTITY_RPC_URL", fixture.identity.internal.as_str()),
        ("MACHINE_REGISTRY_RPC_URL", fixture.registry.internal.as_str()),
    ];
    let database = machine.database("bench_bad_runs")?;
    let orchestrator = machine.service("orchestrator", &[rpc[0], rpc[1], ("DATABASE_URL", &database)])?;
    // The limits are those of a deployment, except that the honest caller, who comes from the same address, has none.
    let edge = machine.service(
        "edge-proxy",
        &[
            ("IDENTITY_URL", fixture.identity.public.as_str()),
            rpc[0],
            ("MACHINE_REGISTRY_URL", &fixture.registry.public),
            ("SESSION_STORE_URL", &fixture.store.public),
            ("ORCHESTRATOR_URL", &orchestrator.public),
            ("VOICE_GATEWAY_URL", "http://127.0.0.1:9"),
            ("LIMIT_ACCOUNT", "0"),
            ("LIMIT_ADDRESS", "0"),
            ("LIMIT_MACHINE", "0"),
        ],
    )?;
    let honest = Arc::new(machine.runtime.block_on(honest(&fixture, &edge))?);
    let bad = machine.runtime.block_on(sign_in(&fixture.identity.public))?;
    let bodies = Arc::new(machine.runtime.block_on(worst(&honest, &bad))?);
    let time = options.round.max(Duration::from_secs(10));
    let mut quiet: BTreeMap<&str, Rounds> = BTreeMap::new();
    let mut disturbed: BTreeMap<&str, Rounds> = BTreeMap::new();
    let mut latest = Rounds::default();
    for _ in 0..options.rounds {
        let figures = machine.runtime.block_on(ask(&honest, time))?;
        for (name, times) in figures {
            quiet.entry(name).or_default().push(percentile(times, 99));
        }
        let over = Arc::new(AtomicBool::new(false));
        let sending: Vec<_> = (0..BAD_CONNECTIONS)
            .map(|at| machine.runtime.spawn(send_worst(Arc::clone(&bodies), at, Arc::clone(&over))))
            .collect();
        let leaving = machine.runtime.spawn(leave_unread(Arc::clone(&bodies), Arc::clone(&over)));
        let figures = machine.runtime.block_on(ask(&honest, time))?;
        over.store(true, Ordering::SeqCst);
        machine.runtime.block_on(leaving)?;
        for sender in sending {
            machine.runtime.block_on(sender)?;
        }
        for (name, times) in figures {
            if name == "heartbeat" {
                latest.push(times.iter().copied().fold(0.0, f64::max));
            }
            disturbed.entry(name).or_default().push(percentile(times, 99));
        }
    }
    for (name, rounds) in disturbed {
        let calm = quiet.remove(name).unwrap_or_default();
        let target = Target::AtMost((3.0 * calm.median()).max(P99_MS));
        report.alone(&format!("one bad caller: p99 of another account's {name}"), "ms", rounds, target);
        report.alone(&format!("one bad caller: the same of {name}, undisturbed"), "ms", calm, Target::None);
    }
    report.alone("one bad caller: the latest heartbeat", "ms", latest, Target::AtMost(LATEST_HEARTBEAT_MS));
    Ok(())
}

async fn honest(fixture: &Fixture<'_>, edge: &Service) -> Result<Honest> {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(15)).build()?;
    let user = fixture.token.clone();
    let post =
        async |path: &str, token: &str, body: Value| call(&http, format!("{}{path}", edge.public), token, &body).await;
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned).context("no text");
    let session =
        post("/v1/sessions", &user, json!({ "machineId": "m", "metadata": "x", "encryptionKey": "x" })).await?;
    let made = post("/v1/auth/tokens", &user, json!({ "machineId": "m" })).await?;
    let machine = text(&made, "token")?;
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "timeoutMs": 86_400_000 }] });
    post("/v1/orchestrator/runs", &user, run).await?;
    let wanted = json!({ "machineId": "m", "providers": ["claude"], "capacity": 1, "waitMs": 1_000 });
    let leases = post("/v1/orchestrator/leases", &machine, wanted).await?;
    let lease = leases.pointer("/leases/0").cloned().context("no lease")?;
    Ok(Honest { session: text(&session, "id")?, edge: edge.public.clone(), http, user, machine, lease })
}

/// Milliseconds of each call, by route. A call that fails is an error of the measurement: no lease may be lost.
async fn ask(honest: &Arc<Honest>, time: Duration) -> Result<BTreeMap<&'static str, Vec<f64>>> {
    let mut asking = Vec::new();
    for name in ["list", "append", "heartbeat"] {
        let honest = Arc::clone(honest);
        asking.push(tokio::spawn(async move {
            let (begun, mut times) = (Instant::now(), Vec::new());
            let mut tick = tokio::time::interval(PAUSE);
            while begun.elapsed() < time {
                tick.tick().await;
                let sent = Instant::now();
                honest.call(name).await?;
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, anyhow::Error>((name, times))
        }));
    }
    let mut all = BTreeMap::new();
    for one in asking {
        let (name, times) = one.await??;
        all.insert(name, times);
    }
    Ok(all)
}

impl Honest {
    async fn call(&self, name: &str) -> Result<()> {
        let id = self.lease.get("id").and_then(Value::as_str).unwrap_or_default();
        let local = ensemble_types::ids::TokenId::generate().to_string();
        let request = match name {
            "list" => self.http.get(format!("{}/v1/sessions", self.edge)).bearer_auth(&self.user),
            "append" => self
                .http
                .post(format!("{}/v3/sessions/{}/messages", self.edge, self.session))
                .bearer_auth(&self.user)
                .json(&json!({ "content": "x", "localId": local })),
            _ => self
                .http
                .post(format!("{}/v1/orchestrator/leases/{id}/heartbeat", self.edge))
                .bearer_auth(&self.machine)
                .json(&json!({ "fence": self.lease.get("fence") })),
        };
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{name}: {status} {text:.300}");
        Ok(())
    }
}

/// A request of the bad caller.
struct Bad {
    method: Method,
    url: String,
    token: String,
    body: bytes::Bytes,
}

/// The worst bodies that the bounds allow, and a history at its limit to read.
async fn worst(honest: &Honest, token: &str) -> Result<Vec<Bad>> {
    let edge = &honest.edge;
    let runs = format!("{edge}/v1/orchestrator/runs");
    let post = async |path: &str, body: &Value| call(&honest.http, format!("{edge}{path}"), token, body).await;
    post("/v1/machines", &json!({ "id": "bad", "metadata": "x", "encryptionKey": "x" })).await?;
    let session = post("/v1/sessions", &json!({ "machineId": "bad", "metadata": "x", "encryptionKey": "x" })).await?;
    let session = session.get("id").and_then(Value::as_str).context("no session")?.to_owned();
    let messages = format!("/v3/sessions/{session}/messages");
    let long = json!({ "content": "x".repeat(1_000_000), "localId": "long" });
    for at in 0..4 {
        let mut one = long.clone();
        if let Some(id) = one.get_mut("localId") {
            *id = json!(format!("long-{at}"));
        }
        post(&messages, &one).await?;
    }
    for at in 0..18 {
        let session =
            json!({ "machineId": "bad", "tag": at.to_string(), "metadata": "x".repeat(250_000), "encryptionKey": "x" });
        post("/v1/sessions", &session).await?;
    }
    let templates = json!({ "tasks": vec![json!({ "prompt": "{{tasks.".repeat(8_100), "provider": "claude" }); 240] });
    // The last task depends on itself, so that nothing is stored and the run can be sent again and again.
    let mut edges: Vec<Value> = (0..9_999_usize)
        .map(|at| {
            let names: Vec<String> = (at.saturating_sub(10)..at).map(|to| to.to_string()).collect();
            json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
        })
        .collect();
    edges.push(json!({ "prompt": "x", "provider": "claude", "dependsOn": ["9999"] }));
    let keys: Vec<String> = (0..1_400_000).map(|at| format!("\"{at:x}\":0")).collect();
    let objects: Vec<String> = keys.chunks(9_000).map(|chunk| format!("{{{}}}", chunk.join(","))).collect();
    let objects = format!("{{\"localId\":\"x\",\"content\":\"x\",\"more\":[{}]}}", objects.join(","));
    let bad =
        |method: Method, url: String, body: String| Bad { method, url, token: token.to_owned(), body: body.into() };
    Ok(vec![
        bad(Method::POST, runs.clone(), templates.to_string()),
        bad(Method::POST, runs, json!({ "tasks": edges }).to_string()),
        bad(Method::POST, format!("{edge}{messages}"), objects.chars().take(16_700_000).collect()),
        bad(Method::POST, format!("{edge}{messages}"), format!("{{{}}}", keys.join(","))),
        bad(Method::GET, format!("{edge}{messages}?limit=500"), String::new()),
        bad(Method::GET, format!("{edge}/v1/sessions?limit=500"), String::new()),
    ])
}

async fn send_worst(all: Arc<Vec<Bad>>, from: usize, over: Arc<AtomicBool>) {
    let Ok(http) = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build() else { return };
    // Each connection begins with another body, so that different ones meet.
    for bad in all.iter().cycle().skip(from) {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let request = http.request(bad.method.clone(), &bad.url).bearer_auth(&bad.token);
        let request = request.header("content-type", "application/json").body(bad.body.clone());
        if let Ok(answer) = request.send().await {
            let _ = answer.bytes().await;
        }
    }
}

/// Asks for the largest pages again and again without reading them.
async fn leave_unread(all: Arc<Vec<Bad>>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        let mut held = Vec::new();
        for bad in all.iter().filter(|bad| bad.method == Method::GET) {
            let Ok(url) = reqwest::Url::parse(&bad.url) else { return };
            let path = bad.url.split_once(url.authority()).map_or("/", |(_, path)| path);
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", bad.token);
            if let Ok(connections) = unread(url.authority(), &request, UNREAD_PAGES).await {
                held.extend(connections);
            }
        }
        tokio::time::sleep(UNREAD_FOR).await;
    }
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
