//! Measures the time that the voice gateway adds to a start, beyond LiveKit's own, at 16 and at 2 concurrent starts.
//!
//! Sixteen callers without a pause keep two cores busy with the gateway, the database, this driver and the LiveKit double, so
//! they mostly wait for each other. Two callers show the time of a start alone.
//!
//! `voice-bench <gateway program> [rounds]`; on SQLite, and on the server of `TEST_DATABASE_URL` when there is one. Every
//! start waits for two flushes of the disk, so the time of one flush is measured as well. `make bench` reads the lines of
//! the rounds.

#![expect(clippy::print_stdout, reason = "the benchmark prints its figures")]

use std::io::{Seek, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::{App, HttpResponse, HttpServer, web};
use ensemble_doubles::livekit::{API_KEY, API_SECRET, AgentPlan, Double, Fault, Ready};
use serde_json::{Value, json};

/// Callers that each start some sessions, one after the other. All sessions are stopped after the last start.
struct Load {
    name: &'static str,
    callers: usize,
    starts: usize,
    /// Whether they send an `Idempotency-Key`, as our own client does.
    keyed: bool,
    /// Sessions that are open before.
    open: usize,
}

const AT_ONCE: Load = Load { name: "16 at once", callers: 16, starts: 40, keyed: false, open: 0 };
/// The gateway has a limit of 750 sessions whose start no user has proven, and is more careful near it.
const LOADS: [Load; 4] = [
    AT_ONCE,
    Load { name: "16 at once, 600 open", starts: 8, open: 600, ..AT_ONCE },
    Load { name: "16 at once with keys", keyed: true, ..AT_ONCE },
    Load { name: "2 at once", callers: 2, ..AT_ONCE },
];
/// While two endpoints are called for each session.
const WITH_WEBHOOKS: [Load; 1] = [Load { name: "16 at once, two webhooks", ..AT_ONCE }];
/// Besides a first one for warming up, which is not counted.
const ROUNDS: usize = 6;
/// Flushes of the disk in one round.
const FLUSHES: usize = 100;
/// A LiveKit in the same region answers CreateRoom about this fast.
const LIVEKIT: Duration = Duration::from_millis(20);
const VOICE_KEY: &str = "voice-key-of-the-benchmark";

/// Of the endpoints.
const WEBHOOK_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let program = std::env::args().nth(1).ok_or("say where the gateway's program is")?;
    let rounds = std::env::args().nth(2).map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let folder = std::env::temp_dir().join(format!("ensemble-voice-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut databases = vec![("SQLite", format!("sqlite:{}/voice.db", folder.display()))];
    #[expect(clippy::disallowed_methods, reason = "a program of its own, without the services' configuration")]
    if let Ok(url) = std::env::var("TEST_DATABASE_URL") {
        databases.push(("PostgreSQL", url));
    }
    println!("LiveKit answers after {} ms", LIVEKIT.as_millis());
    for (name, url) in databases {
        measure(&program, (name, &url), rounds, &folder).await?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn print_times(what: &str, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at =
        |share: f64| sorted.get((sorted.len() as f64 * share) as usize).map_or(0.0, Duration::as_secs_f64) * 1_000.0;
    println!("{what}: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.9), at(0.99));
}

/// The time of one flush of a page of 8 KiB on the idle disk.
fn flushes(folder: &Path) -> std::io::Result<Vec<Duration>> {
    let mut file = std::fs::File::create(folder.join("flushed"))?;
    // Like a reused log file: the flush writes content and does not change the file's length.
    file.write_all(&vec![0; 8_192 * FLUSHES])?;
    file.sync_all()?;
    file.rewind()?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        file.write_all(&[1; 8_192])?;
        let begun = Instant::now();
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Prints the times of all starts, without LiveKit's time.
async fn measure(program: &str, (name, database): (&str, &str), rounds: usize, folder: &Path) -> Result<(), Failure> {
    let taken = Arc::new(AtomicUsize::new(0));
    let endpoints = [endpoint(taken.clone())?, endpoint(taken.clone())?];
    for webhooks in [false, true] {
        let gateway = Gateway::start(program, database, if webhooks { &endpoints } else { &[] }).await?;
        let loads = if webhooks { &WITH_WEBHOOKS[..] } else { &LOADS[..] };
        for round in 0..=rounds {
            let flushed = flushes(folder)?;
            if round > 0 && !webhooks {
                print_times(&format!("Disk with {name}, round {round}"), &flushed);
            }
            for load in loads {
                let own = gateway.round(load, &format!("{webhooks}-{round}-{}", load.name)).await?;
                if round > 0 {
                    print_times(&format!("{name}, {}, round {round}", load.name), &own);
                }
            }
        }
    }
    match taken.load(Ordering::Relaxed) {
        0 => Err("no endpoint was called".into()),
        taken => {
            println!("{name}: the two endpoints took {taken} webhooks");
            Ok(())
        }
    }
}

/// A server that takes webhooks, and counts them. Returns its origin.
fn endpoint(taken: Arc<AtomicUsize>) -> Result<String, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let origin = format!("http://{}", listener.local_addr()?);
    let server = HttpServer::new(move || {
        let taken = taken.clone();
        App::new().default_service(web::to(move || {
            taken.fetch_add(1, Ordering::Relaxed);
            std::future::ready(HttpResponse::Ok().finish())
        }))
    });
    tokio::spawn(server.workers(1).disable_signals().listen(listener)?.run());
    Ok(origin)
}

/// The program that is measured, with a double of LiveKit of its own. It ends with this.
struct Gateway {
    process: Child,
    double: Double,
    http: reqwest::Client,
    url: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Gateway {
    async fn start(program: &str, database: &str, endpoints: &[String]) -> Result<Self, Failure> {
        let double = Double::start()?;
        double.plan_agents(AgentPlan { workers: false, ready: Ready::Never, ..AgentPlan::default() });
        double.fail_randomly(1.0, vec![Fault::Slow(LIVEKIT)], 1);
        let (public, internal) = (free_address()?, free_address()?);
        let webhooks: Vec<_> = endpoints
            .iter()
            .enumerate()
            .map(|(at, origin)| format!("endpoint{at} {origin}/ {WEBHOOK_SECRET}"))
            .collect();
        let (webhooks, trusted, livekit) = (webhooks.join(";"), endpoints.join(","), double.url());
        let mut variables = vec![
            ("DATABASE_URL", database),
            ("PUBLIC_LISTEN", &public),
            ("INTERNAL_LISTEN", &internal),
            ("INTERNAL_TOKEN", "internal-token-of-the-benchmark"),
            ("LIVEKIT_URL", &livekit),
            ("LIVEKIT_API_KEY", API_KEY),
            ("LIVEKIT_API_SECRET", API_SECRET),
            ("VOICE_PUBLIC_KEY", VOICE_KEY),
            ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "3600"),
            ("VOICE_STARTS_PER_MINUTE_PER_KEY", "0"),
            ("VOICE_STARTS_PER_MINUTE_PER_ADDRESS", "0"),
            ("RUST_LOG", "warn"),
        ];
        if !endpoints.is_empty() {
            variables.extend([("VOICE_WEBHOOKS", webhooks.as_str()), ("VOICE_WEBHOOK_TRUSTED_ORIGINS", &trusted)]);
        }
        let process = Command::new(program).envs(variables).stdin(Stdio::null()).spawn()?;
        let (http, url) = (reqwest::Client::new(), format!("http://{public}"));
        double.send_webhooks_to(format!("{url}/hooks/livekit"));
        let gateway = Self { process, double, http, url };
        await_readiness(&gateway.http, &internal).await?;
        Ok(gateway)
    }

    /// The time of each start of the load.
    async fn round(&self, load: &Load, name: &str) -> Result<Vec<Duration>, Failure> {
        let open = self.starts(load.callers, load.open.div_ceil(load.callers), &format!("{name}-open"), false).await?;
        let started = self.starts(load.callers, load.starts, name, load.keyed).await?;
        let times = started.iter().flatten().map(|one| one.own).collect();
        // After the last start, so that stops do not compete with starts.
        let all =
            open.into_iter().chain(started).map(|all| tokio::spawn(stop(self.http.clone(), self.url.clone(), all)));
        for stopped in all.collect::<Vec<_>>() {
            stopped.await??;
        }
        Ok(times)
    }

    async fn starts(
        &self,
        callers: usize,
        starts: usize,
        name: &str,
        keyed: bool,
    ) -> Result<Vec<Vec<Started>>, Failure> {
        let start = |caller| {
            let name = format!("{name}-{caller}");
            start(self.double.clone(), self.http.clone(), self.url.clone(), starts, name, keyed)
        };
        let callers: Vec<_> = (0..callers).map(|caller| tokio::spawn(start(caller))).collect();
        let mut started = Vec::with_capacity(callers.len());
        for caller in callers {
            started.push(caller.await??);
        }
        Ok(started)
    }
}

async fn await_readiness(http: &reqwest::Client, internal: &str) -> Result<(), Failure> {
    let ready = format!("http://{internal}/readyz");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
        if Instant::now() > deadline {
            return Err("the gateway does not become ready".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn stop(http: reqwest::Client, url: String, all: Vec<Started>) -> Result<(), Failure> {
    for one in all {
        let request = http.post(format!("{url}/v1/voice/session/stop")).header("x-voice-key", VOICE_KEY);
        request.json(&json!({ "gatewaySessionId": one.id })).send().await?.error_for_status()?;
    }
    Ok(())
}

struct Started {
    id: Value,
    own: Duration,
}

/// One caller: starts one session after the other.
async fn start(
    double: Double,
    http: reqwest::Client,
    url: String,
    starts: usize,
    name: String,
    keyed: bool,
) -> Result<Vec<Started>, Failure> {
    let mut all = Vec::with_capacity(starts);
    for number in 0..starts {
        let body = json!({ "userId": format!("user-{name}-{number}"), "sessionId": "session", "language": "en" });
        let begun = Instant::now();
        let mut request = http.post(format!("{url}/v1/voice/session/start")).header("x-voice-key", VOICE_KEY);
        if keyed {
            request = request.header("idempotency-key", format!("key-of-the-benchmark-{name}-{number}"));
        }
        let answer: Value = request.json(&body).send().await?.json().await?;
        let took = begun.elapsed();
        let room = answer.get("roomName").and_then(Value::as_str).ok_or("a start was not allowed")?;
        let livekit = double.took(room).ok_or("LiveKit was not called")?;
        let id = answer.get("gatewaySessionId").cloned().ok_or("a session has no id")?;
        all.push(Started { id, own: took.saturating_sub(livekit) });
    }
    Ok(all)
}

fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}
