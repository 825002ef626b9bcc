//! The scenario of one seed: start the stack, measure its resources under load, inject faults, compare the resources,
//! stop and restart each service, and check the history.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::poll;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::check::{self, Stored};
use crate::clients::{LinkPool, User};
use crate::drain::{DrainCase, Ending};
use crate::faults::Fault;
use crate::history::{HistoryLog, Message, When};
use crate::load::{Answer, Call, Client};
use crate::process::Usage;
use crate::stack::Stack;

const WRITERS: usize = 8;
const SESSIONS: usize = 3;
const VISITORS: usize = 4;
/// How long the resources are measured under load before the first fault.
const BASELINE: Duration = Duration::from_secs(4);
/// `DATABASE_POOL_SIZE` of the services.
const POOL: f64 = 8.0;
/// How long a service may take to release the resources of a fault. Blocking threads of the runtime end after 10 s
/// without work.
const RECOVERY_OF_RESOURCES: Duration = Duration::from_secs(25);

/// The users and sessions of the scenario.
struct Setup {
    owner: User,
    guest: User,
    stranger: User,
    sessions: Vec<String>,
    /// The session whose metadata the clients race for, and whose public links they open.
    first: String,
}

/// Returns the violations. The logs and the history are in `folder`.
pub(crate) async fn run_seed(seed: u64, folder: &Path) -> Result<Vec<String>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut stack = Stack::build(folder).await?;
    let log = Arc::new(Mutex::new(HistoryLog::begin(&folder.join("history.jsonl"))?));
    let (stop, stopping) = watch::channel(false);
    // Idle connections of clients would count as open files of the services.
    let http = reqwest::Client::builder().no_proxy().pool_idle_timeout(Duration::from_secs(3)).build()?;
    let client = Client { http, url: stack.edge()?, log: Arc::clone(&log), stop: stopping };
    let setup = setup(&stack, &client).await?;
    stack.probe.clone_from(&setup.owner.token);

    let clients = load(&client, &setup, &mut random);
    let (baseline, fill_pools) = tokio::join!(stack.watch(BASELINE), stack.fill_pools());
    fill_pools?;
    let mut violations = Vec::new();
    for fault in Fault::round(&mut random, stack.services.len(), stack.links.len()) {
        // Faults arrive at random times.
        sleep(Duration::from_millis(random.gen_range(200..800))).await;
        let sent = client.now();
        let outcome = stack.apply(fault).await.err().map(|error| format!("after {fault:?}: {error:#}"));
        if let Ok(mut log) = log.lock() {
            let when = When { sent, answered: log.now() };
            log.write(when, "chaos", &format!("{fault:?}"), &json!(outcome));
        }
        violations.extend(outcome);
    }
    stack.heal();
    violations.extend(stack.compare_usage(&baseline).await);
    stop.send_replace(true);
    for client in clients {
        client.await?;
    }

    let still = Client { stop: watch::channel(false).1, ..client.clone() };
    violations.extend(drain_all(&mut stack, &still, &setup, &mut random).await?);
    let stored = read_all(&still, &setup.owner.token, &setup.sessions).await?;
    let mut secrets = vec!["canary-".to_owned()];
    secrets.extend([&setup.owner, &setup.guest, &setup.stranger].map(|client| client.token.clone()));
    let history = &log.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?.end();
    secrets.extend(history.links.keys().cloned());
    for process in &stack.services {
        violations.extend(process.leaks(&stack.http, &secrets).await);
    }
    violations.extend(check::violations(history, &stored));
    // A scenario without activity proves nothing.
    ensure!(!history.acknowledged.is_empty(), "nothing was acknowledged");
    ensure!(history.forwards.iter().chain(&history.backwards).any(|seen| !seen.is_empty()), "no client read anything");
    ensure!(history.links.values().any(|link| !link.views.is_empty()), "no link was ever opened");
    ensure!(history.shares.iter().any(|share| !share.entries.is_empty()), "the guest was never admitted");
    ensure!(history.versions.len() > 1, "no client changed the metadata");
    println!(
        "seed {seed}: {} requests, {} refused, {} lost; {} appends, {} views of {} links, {} entries of the guest, \
         {} versions; slowest start {:?}, recovery {:?}, refusal {:?}; {} violations",
        history.requests,
        history.refused,
        history.lost,
        history.acknowledged.len(),
        history.links.values().map(|link| link.views.len()).sum::<usize>(),
        history.links.len(),
        history.shares.iter().map(|share| share.entries.len()).sum::<usize>(),
        history.versions.len(),
        stack.slowest.start,
        stack.slowest.recovery,
        stack.slowest.refusal,
        violations.len()
    );
    Ok(violations)
}

async fn setup(stack: &Stack, client: &Client) -> Result<Setup> {
    let (owner, guest, stranger) = (stack.sign_in().await?, stack.sign_in().await?, stack.sign_in().await?);
    let ask = async |path: &str, body: Value| {
        let (token, path) = (owner.token.as_str(), path.to_owned());
        client.call(Call { who: "owner", token, method: "POST", path, body: Some(body), expected: &[] }).await
    };
    let machine = json!({ "id": "m", "metadata": "canary-metadata", "encryptionKey": "canary-key" });
    let made = ask("/v1/machines", machine).await;
    ensure!(matches!(made, Some(Answer { status: 201, .. })), "the machine was not registered: {made:?}");
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = json!({ "machineId": "m", "metadata": "canary-metadata", "encryptionKey": "canary-key" });
        let made = ask("/v1/sessions", session).await;
        sessions.push(made.and_then(|made| made.text("/id")).context("no session was created")?);
    }
    let first = sessions.first().context("no sessions")?.clone();
    Ok(Setup { owner, guest, stranger, sessions, first })
}

/// Starts all clients.
fn load(client: &Client, setup: &Setup, random: &mut StdRng) -> Vec<JoinHandle<()>> {
    let Setup { owner, guest, stranger, sessions, first } = setup;
    let (token, links) = (|| owner.token.clone(), LinkPool::default());
    let me = || client.clone();
    let mut clients = Vec::new();
    for name in 0..WRITERS {
        clients.push(tokio::spawn(me().write_messages(token(), sessions.clone(), name, random.r#gen())));
    }
    for session in sessions {
        clients.push(tokio::spawn(me().read_forwards(token(), session.clone())));
        clients.push(tokio::spawn(me().read_backwards(token(), session.clone())));
        clients.push(tokio::spawn(me().follow(token(), session.clone())));
        clients.push(tokio::spawn(me().probe_without_access(stranger.token.clone(), session.clone(), random.r#gen())));
    }
    for name in 0..3 {
        clients.push(tokio::spawn(me().race(token(), first.clone(), name)));
    }
    clients.push(tokio::spawn(me().make_links(token(), first.clone(), links.clone(), random.r#gen())));
    for name in 0..VISITORS {
        clients.push(tokio::spawn(me().open_links(links.clone(), name, random.r#gen())));
    }
    let guest = User { token: guest.token.clone(), id: guest.id.clone() };
    clients.push(tokio::spawn(me().share(token(), guest, random.r#gen())));
    clients.push(tokio::spawn(me().submit_runs(token(), random.r#gen())));
    clients
}

impl Stack {
    /// The highest use of each service in this time.
    async fn watch(&self, time: Duration) -> Vec<Usage> {
        let mut most = vec![Usage::default(); self.services.len()];
        let end = Instant::now() + time;
        // Samples the use ten times a second.
        let mut sample = interval(Duration::from_millis(100));
        while Instant::now() < end {
            sample.tick().await;
            for (most, service) in most.iter_mut().zip(&self.services) {
                let now = service.usage();
                most.memory_mib = most.memory_mib.max(now.memory_mib);
                most.files = most.files.max(now.files);
                most.threads = most.threads.max(now.threads);
            }
        }
        most
    }

    /// X2: under the same load each service returns to its use before the faults. A connection pool may have grown to
    /// its full size, which the tolerance allows for; a leak with each fault would exceed it.
    async fn compare_usage(&self, baseline: &[Usage]) -> Vec<String> {
        let exceeded = || -> Vec<String> {
            let usage =
                self.services.iter().zip(baseline).map(|(service, baseline)| (service, service.usage(), *baseline));
            usage
                .filter(|(_, now, baseline)| {
                    now.memory_mib > baseline.memory_mib * 1.5
                        || now.files > baseline.files * 1.05 + POOL
                        || now.threads > baseline.threads * 1.05 + POOL
                })
                .map(|(service, now, before)| {
                    format!("X2: {} uses {now:?}, before the faults {before:?}", service.name)
                })
                .collect()
        };
        match poll(RECOVERY_OF_RESOURCES, async || exceeded().is_empty().then_some(())).await {
            Some(()) => Vec::new(),
            None => exceeded(),
        }
    }
}

/// Stops each service once, with one of the two signals, in random order.
async fn drain_all(stack: &mut Stack, client: &Client, setup: &Setup, random: &mut StdRng) -> Result<Vec<String>> {
    let task = json!({ "tasks": [{ "prompt": "canary-prompt", "provider": "claude", "machineId": "m" }] });
    let (token, path) = (setup.owner.token.as_str(), "/v1/orchestrator/runs".to_owned());
    let made = client.call(Call { who: "owner", token, method: "POST", path, body: Some(task), expected: &[] }).await;
    let made = made.context("no run was made")?;
    let (run, task) = (made.text("/id").context("no run")?, made.text("/tasks/0/id").context("no task")?);
    let run = format!("/v1/orchestrator/runs/{run}");
    let stream = (format!("/v3/sessions/{}/messages/stream", setup.first), Ending::Hint);
    let pend = (format!("{run}/pend?timeoutMs=60000"), Ending::Answer);
    let output = (format!("{run}/tasks/{task}/output?follow=true"), Ending::End);
    let events = (format!("{run}/events"), Ending::Hint);
    let everything = vec![stream.clone(), pend.clone(), output.clone(), events.clone()];
    let page = format!("/v3/sessions/{}/messages?limit=20", setup.first);
    let cases = [
        ("/v1/account".to_owned(), Vec::new()),
        ("/v1/machines".to_owned(), Vec::new()),
        (page.clone(), vec![stream]),
        (run, vec![pend, output, events]),
        (page, everything),
    ];
    let mut cases: Vec<DrainCase> = (0..)
        .zip(cases)
        .map(|(service, (path, waits))| DrainCase { service, token: setup.owner.token.clone(), path, waits })
        .collect();
    cases.shuffle(random);
    let mut violations = Vec::new();
    for case in cases {
        let signal = if random.gen_bool(0.5) { Signal::SIGTERM } else { Signal::SIGINT };
        violations.extend(stack.drain(&case, signal).await?);
    }
    Ok(violations)
}

/// The whole log of each session, from the beginning.
async fn read_all(client: &Client, token: &str, sessions: &[String]) -> Result<Stored> {
    let mut stored = HashMap::new();
    for session in sessions {
        let mut log: Vec<Message> = Vec::new();
        loop {
            let after = log.last().map_or(0, |last| last.seq);
            let path = format!("/v3/sessions/{session}/messages?after={after}&limit=500");
            let call = Call { who: "checker", token, method: "GET", path, body: None, expected: &[] };
            let page = client.call(call).await.filter(|page| page.status == 200);
            let page = page.context("a page could not be read although all faults are over")?;
            let messages = Message::page(session, &page.body);
            if messages.is_empty() {
                break;
            }
            log.extend(messages);
        }
        stored.insert(session.clone(), log);
    }
    Ok(stored)
}
