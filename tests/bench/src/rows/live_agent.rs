//! A real runner with an agent that prints a token every 50 ms: how late a follower sees the tokens, and how late a
//! cancellation reaches the agent. Through the edge, as for people. This program is the agent, too.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ensemble_client::{Client, Credential, OutputOf};
use ensemble_types::runs::Run;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::fixture::Fixture;
use super::run_latency::percentile;
use super::runs::{RunFixture, call, prepare};
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// When it is set, this program is the agent. It writes to this file when it receives the signal to end.
pub(crate) const AGENT: &str = "ENSEMBLE_BENCH_AGENT";
const TOKEN_EVERY: Duration = Duration::from_millis(50);
const CANCELS: usize = 20;
/// As many tokens are looked at in a task before it is cancelled.
const TOKENS: usize = 10;
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn live(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let runs = prepare(machine, &fixture)?;
    let folder = machine.scratch.path().join("live-agent");
    std::fs::create_dir_all(&folder)?;
    let ended_at = folder.join("ended-at");
    let _runner = Runner::start(machine, &runs, &folder, &ended_at)?;
    let client = Client::builder(&runs.edge).credential(Credential::Bearer(runs.user.as_str().into())).build()?;
    let (mut tokens, mut cancels) = (Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        let (mut seen, mut signalled) = (Vec::new(), Vec::new());
        for _ in 0..CANCELS {
            let (late, after) = machine.runtime.block_on(one_task(&runs, &client, &ended_at))?;
            seen.extend(late);
            signalled.push(after);
        }
        tokens.push(percentile(&seen, 99)?);
        cancels.push(percentile(&signalled, 99)?);
    }
    report.alone("live: an agent's token → a follower, p99", "ms", tokens, Target::AtMost(300.0));
    report.alone("live: cancelled → the agent's signal, p99", "ms", cancels, Target::AtMost(1000.0));
    Ok(())
}

/// How late each token of a new task arrived, and how late its cancellation, in milliseconds.
async fn one_task(runs: &RunFixture, client: &Client, ended_at: &Path) -> Result<(Vec<f64>, f64)> {
    let task = json!({ "prompt": "x", "provider": "claude", "dependsOn": [] });
    let made = call(&runs.http, format!("{}/v1/orchestrator/runs", runs.edge), &runs.user, &json!({ "tasks": [task] }))
        .await?;
    let run: Run = serde_json::from_value(made)?;
    let task = run.tasks.iter().flatten().next().context("no task")?;
    let output = client.follow_output(OutputOf { run: run.id, task: task.id, attempt: None, from: 0 });
    let late = tokio::time::timeout(SOON, arrivals(output)).await.context("no tokens arrive")??;
    match std::fs::remove_file(ended_at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let cancelled_at = now();
    client.cancel_run(run.id, None).await?;
    let waited = Instant::now();
    loop {
        let written = std::fs::read_to_string(ended_at).ok().and_then(|text| text.parse::<f64>().ok());
        match written {
            Some(ended_at) => return Ok((late, ended_at - cancelled_at)),
            None if waited.elapsed() > SOON => bail!("a cancelled agent received no signal to end"),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn arrivals(output: impl Stream<Item = ensemble_client::Result<impl AsRef<[u8]>>>) -> Result<Vec<f64>> {
    let mut output = std::pin::pin!(output);
    let (mut late, mut rest) = (Vec::new(), String::new());
    while late.len() < TOKENS {
        let piece = output.next().await.context("the output has ended")??;
        let arrived_at = now();
        rest.push_str(std::str::from_utf8(piece.as_ref())?);
        while let Some((line, after)) = rest.split_once('\n') {
            late.extend(line.trim().parse::<f64>().ok().map(|printed_at| arrived_at - printed_at));
            rest = after.to_owned();
        }
    }
    ensure!(late.iter().all(|late| *late >= 0.0), "a token from the future: {late:?}");
    Ok(late)
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a time that two processes compare")]
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// The release build of the runner with this program as `claude`.
struct Runner(Child);

impl Runner {
    fn start(machine: &Machine, runs: &RunFixture, folder: &Path, ended_at: &Path) -> Result<Self> {
        let file = folder.join("runner.yaml");
        let agent = json!({ "program": std::env::current_exe()?, "env": { AGENT: ended_at } });
        let others = json!({ "enabled": false });
        let config = json!({
            "stateDir": folder.join("state"), "capacity": 4, "accept": "any",
            "providers": { "claude": agent, "codex": others, "gemini": others },
        });
        std::fs::write(&file, config.to_string())?;
        let log = std::fs::File::create(folder.join("runner.log"))?;
        let child = Command::new(machine.program("ensemble-runner"))
            .arg(&file)
            .env("ENSEMBLE_SERVER", &runs.edge)
            // The folders of agents whose guards were killed go with this run.
            .env("TMPDIR", folder)
            .env("ENSEMBLE_MACHINE_ID", "m")
            .env("ENSEMBLE_MACHINE_TOKEN", &runs.machine)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("ensemble-runner does not start; build it with `cargo build --release`")?;
        Ok(Self(child))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Its guards end the agents.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent: the time every [`TOKEN_EVERY`] in the form of Claude Code's stream, until it receives the signal to end.
pub(crate) fn agent(ended_at: &Path) -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--version") => return print("2.1.0 (bench)"),
        Some("auth") => return print(r#"{"loggedIn":true}"#),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut tick = tokio::time::interval(TOKEN_EVERY);
        print(&json!({ "type": "system", "subtype": "init", "session_id": "bench" }).to_string())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = tick.tick() => {
                    let delta = json!({ "type": "text_delta", "text": format!("{}\n", now()) });
                    let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
                    print(&json!({ "type": "stream_event", "event": event }).to_string())?;
                }
            }
        }
        // A reader sees the whole number or nothing.
        let whole = ended_at.with_extension("new");
        std::fs::write(&whole, now().to_string())?;
        Ok(std::fs::rename(whole, ended_at)?)
    })
}

fn print(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
