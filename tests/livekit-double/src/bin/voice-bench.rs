//! What the voice gateway adds to a start: its time beyond LiveKit's own, at 16 concurrent starts.
//!
//! `voice-bench <gateway program>`; on SQLite, and on the server of `TEST_DATABASE_URL` when there is one.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_livekit_double::{API_KEY, API_SECRET, AgentPlan, Double, Fault, Ready};
use serde_json::{Value, json};

const AT_ONCE: usize = 16;
/// Starts in one round; the sessions of a round are open together, and stopped before the next one.
const STARTS: usize = 640;
/// The first one warms up and is not counted.
const ROUNDS: usize = 7;
/// A LiveKit in the same region answers CreateRoom about this fast.
const LIVEKIT: Duration = Duration::from_millis(20);
const VOICE_KEY: &str = "voice-key-of-the-benchmark";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let program = std::env::args().nth(1).ok_or("say where the gateway's program is")?;
    let folder = std::env::temp_dir().join(format!("ensemble-voice-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut databases = vec![("SQLite", format!("sqlite:{}/voice.db", folder.display()))];
    #[expect(clippy::disallowed_methods, reason = "a program of its own, without the services' configuration")]
    if let Ok(url) = std::env::var("TEST_DATABASE_URL") {
        databases.push(("PostgreSQL", url));
    }
    println!("{} starts, {AT_ONCE} at once, LiveKit answers after {} ms", STARTS * (ROUNDS - 1), LIVEKIT.as_millis());
    for (name, url) in databases {
        let mut own = measure(&program, &url).await?;
        own.sort_unstable();
        let at = |share: f64| own.get((own.len() as f64 * share) as usize).copied().unwrap_or_default();
        let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
        println!(
            "{name:<11} own time: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms",
            ms(at(0.5)),
            ms(at(0.9)),
            ms(at(0.99))
        );
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The times of all starts, without those that LiveKit took.
async fn measure(program: &str, database: &str) -> Result<Vec<Duration>, Failure> {
    let double = Double::start()?;
    double.plan_agents(AgentPlan { workers: false, ready: Ready::Never, ..AgentPlan::default() });
    double.fail_randomly(1.0, vec![Fault::Slow(LIVEKIT)], 1);
    let (public, internal) = (free_address()?, free_address()?);
    let variables = [
        ("DATABASE_URL", database),
        ("PUBLIC_LISTEN", &public),
        ("INTERNAL_LISTEN", &internal),
        ("INTERNAL_TOKEN", "internal-token-of-the-benchmark"),
        ("LIVEKIT_URL", &double.url()),
        ("LIVEKIT_API_KEY", API_KEY),
        ("LIVEKIT_API_SECRET", API_SECRET),
        ("VOICE_PUBLIC_KEY", VOICE_KEY),
        ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "3600"),
        ("VOICE_STARTS_PER_MINUTE_PER_KEY", "0"),
        ("VOICE_STARTS_PER_MINUTE_PER_ADDRESS", "0"),
        ("RUST_LOG", "warn"),
    ];
    let mut gateway = Command::new(program).envs(variables).stdin(Stdio::null()).spawn()?;
    let measured = starts(&double, &format!("http://{public}"), &format!("http://{internal}")).await;
    gateway.kill()?;
    gateway.wait()?;
    measured
}

async fn starts(double: &Double, public: &str, internal: &str) -> Result<Vec<Duration>, Failure> {
    let http = reqwest::Client::new();
    let ready = format!("{internal}/readyz");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
        if Instant::now() > deadline {
            return Err("the gateway does not become ready".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let mut callers = Vec::new();
        for caller in 0..AT_ONCE {
            callers.push(tokio::spawn(call(
                double.clone(),
                http.clone(),
                public.to_owned(),
                format!("{round}-{caller}"),
            )));
        }
        for caller in callers {
            let times = caller.await??;
            if round > 0 {
                all.extend(times);
            }
        }
    }
    Ok(all)
}

/// One caller: starts one session after the other, and stops them all in the end.
async fn call(double: Double, http: reqwest::Client, url: String, name: String) -> Result<Vec<Duration>, Failure> {
    let (mut times, mut open) = (Vec::new(), Vec::new());
    for number in 0..STARTS / AT_ONCE {
        let body = json!({ "userId": format!("user-{name}-{number}"), "sessionId": "session", "language": "en" });
        let begun = Instant::now();
        let request = http.post(format!("{url}/v1/voice/session/start")).header("x-voice-key", VOICE_KEY);
        let answer: Value = request.json(&body).send().await?.json().await?;
        let took = begun.elapsed();
        let room = answer.get("roomName").and_then(Value::as_str).ok_or("a start was not allowed")?;
        let livekit = double.took(room).ok_or("LiveKit was not asked")?;
        times.push(took.saturating_sub(livekit));
        open.extend(answer.get("gatewaySessionId").cloned());
    }
    for id in open {
        let request = http.post(format!("{url}/v1/voice/session/stop")).header("x-voice-key", VOICE_KEY);
        request.json(&json!({ "gatewaySessionId": id })).send().await?.error_for_status()?;
    }
    Ok(times)
}

fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}
