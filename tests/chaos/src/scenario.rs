//! One seed's story: a town is built and lives in peace for a while; then acts befall it under load; it is healed, and must
//! hold no more than it did in peace; its services end in order and come again; and then it is looked at.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::acts::Act;
use crate::check::{self, Stored};
use crate::drain::{Ending, Visit};
use crate::history::{Chronicle, Told, When};
use crate::load::{Answer, Call, Client};
use crate::people::{Board, Person};
use crate::stage::Holdings;
use crate::town::Town;

const WRITERS: usize = 8;
const SESSIONS: usize = 3;
const VISITORS: usize = 4;
/// In peace, to see what a service holds under this load.
const PEACE: Duration = Duration::from_secs(4);
/// `DATABASE_POOL_SIZE` of the services.
const POOL: f64 = 8.0;
/// How long a service may take to let go of what it took up in bad times. Threads that wait for blocking work end after
/// 10 s without any.
const REST: Duration = Duration::from_secs(25);

/// Who owns what is at stake.
struct Cast {
    owner: Person,
    guest: Person,
    stranger: Person,
    sessions: Vec<String>,
    /// Its metadata is raced for, and its links are visited.
    first: String,
}

/// Gives the faults. The logs and the history are in `folder`.
pub(crate) async fn live_through(seed: u64, folder: &Path) -> Result<Vec<String>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut town = Town::build(folder).await?;
    let chronicle = Arc::new(Mutex::new(Chronicle::begin(&folder.join("history.jsonl"))?));
    let (stop, stopping) = watch::channel(false);
    // What clients keep open is theirs, and must not be held against the services.
    let http = reqwest::Client::builder().no_proxy().pool_idle_timeout(Duration::from_secs(3)).build()?;
    let client = Client { http, url: town.edge()?, chronicle: Arc::clone(&chronicle), stop: stopping };
    let cast = cast(&town, &client).await?;
    town.probe.clone_from(&cast.owner.token);

    let people = load(&client, &cast, &mut random);
    let (peace, crowd) = tokio::join!(town.watch(PEACE), town.crowd());
    crowd?;
    let mut faults = Vec::new();
    for act in Act::round(&mut random, town.services.len(), town.links.len()) {
        sleep(Duration::from_millis(random.gen_range(200..800))).await;
        let asked = client.now();
        let outcome = town.suffer(act).await.err().map(|error| format!("after {act:?}: {error:#}"));
        if let Ok(mut chronicle) = chronicle.lock() {
            let when = When { asked, answered: chronicle.now() };
            chronicle.write(when, "chaos", &format!("{act:?}"), &json!(outcome));
        }
        faults.extend(outcome);
    }
    town.heal();
    faults.extend(town.rest(&peace).await);
    stop.send_replace(true);
    for person in people {
        person.await?;
    }

    let still = Client { stop: watch::channel(false).1, ..client.clone() };
    faults.extend(drain_all(&mut town, &still, &cast, &mut random).await?);
    let stored = read_all(&still, &cast.owner.token, &cast.sessions).await?;
    let mut secrets = vec!["canary-".to_owned()];
    secrets.extend([&cast.owner, &cast.guest, &cast.stranger].map(|person| person.token.clone()));
    let history = &chronicle.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?.end();
    secrets.extend(history.links.keys().cloned());
    for process in &town.services {
        faults.extend(process.leaks(&town.http, &secrets).await);
    }
    faults.extend(check::faults(history, &stored));
    // A story in which nothing happened proves nothing.
    ensure!(!history.acknowledged.is_empty(), "nothing was acknowledged: the load did not load");
    ensure!(history.forwards.iter().chain(&history.backwards).any(|seen| !seen.is_empty()), "nobody read anything");
    ensure!(history.links.values().any(|link| !link.viewings.is_empty()), "no link was ever opened");
    ensure!(history.shares.iter().any(|share| !share.entries.is_empty()), "the guest never got in");
    ensure!(history.versions.len() > 1, "nobody won a race");
    println!(
        "seed {seed}: {} requests, {} refused, {} lost; {} appends, {} viewings of {} links, {} entries of the guest, \
         {} versions; slowest start {:?}, recovery {:?}, refusal {:?}; {} faults",
        history.requests,
        history.refused,
        history.lost,
        history.acknowledged.len(),
        history.links.values().map(|link| link.viewings.len()).sum::<usize>(),
        history.links.len(),
        history.shares.iter().map(|share| share.entries.len()).sum::<usize>(),
        history.versions.len(),
        town.slowest.start,
        town.slowest.recovery,
        town.slowest.told,
        faults.len()
    );
    Ok(faults)
}

async fn cast(town: &Town, client: &Client) -> Result<Cast> {
    let (owner, guest, stranger) = (town.sign_in().await?, town.sign_in().await?, town.sign_in().await?);
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
    Ok(Cast { owner, guest, stranger, sessions, first })
}

/// Sends everybody off.
fn load(client: &Client, cast: &Cast, random: &mut StdRng) -> Vec<JoinHandle<()>> {
    let Cast { owner, guest, stranger, sessions, first } = cast;
    let (token, board) = (|| owner.token.clone(), Board::default());
    let me = || client.clone();
    let mut people = Vec::new();
    for name in 0..WRITERS {
        people.push(tokio::spawn(me().write_messages(token(), sessions.clone(), name, random.r#gen())));
    }
    for session in sessions {
        people.push(tokio::spawn(me().read_forwards(token(), session.clone())));
        people.push(tokio::spawn(me().read_backwards(token(), session.clone())));
        people.push(tokio::spawn(me().follow(token(), session.clone())));
        people.push(tokio::spawn(me().intrude(stranger.token.clone(), session.clone(), random.r#gen())));
    }
    for name in 0..3 {
        people.push(tokio::spawn(me().race(token(), first.clone(), name)));
    }
    people.push(tokio::spawn(me().make_links(token(), first.clone(), board.clone(), random.r#gen())));
    for name in 0..VISITORS {
        people.push(tokio::spawn(me().visit(board.clone(), name, random.r#gen())));
    }
    let guest = Person { token: guest.token.clone(), id: guest.id.clone() };
    people.push(tokio::spawn(me().share(token(), guest, random.r#gen())));
    people.push(tokio::spawn(me().work(token(), random.r#gen())));
    people
}

impl Town {
    /// The most that each service holds in this time.
    async fn watch(&self, time: Duration) -> Vec<Holdings> {
        let mut most = vec![Holdings::default(); self.services.len()];
        let end = Instant::now() + time;
        while Instant::now() < end {
            for (most, service) in most.iter_mut().zip(&self.services) {
                let now = service.holdings();
                most.memory_mib = most.memory_mib.max(now.memory_mib);
                most.files = most.files.max(now.files);
                most.threads = most.threads.max(now.threads);
            }
            sleep(Duration::from_millis(100)).await;
        }
        most
    }

    /// X2: under the same load as in peace, each service comes back to what it held then. Pools stay as large as they once
    /// were, so one that was not full in peace may be so now; what grows with each fault would soon be more than that.
    async fn rest(&self, peace: &[Holdings]) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let holdings =
                self.services.iter().zip(peace).map(|(service, peace)| (service, service.holdings(), *peace));
            let too_much: Vec<String> = holdings
                .filter(|(_, now, peace)| {
                    now.memory_mib > peace.memory_mib * 1.5
                        || now.files > peace.files * 1.05 + POOL
                        || now.threads > peace.threads * 1.05 + POOL
                })
                .map(|(service, now, peace)| format!("X2: {} holds {now:?}, in peace it held {peace:?}", service.name))
                .collect();
            if too_much.is_empty() || begun.elapsed() > REST {
                return too_much;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Each service ends once, by the one signal or the other, in a random order.
async fn drain_all(town: &mut Town, client: &Client, cast: &Cast, random: &mut StdRng) -> Result<Vec<String>> {
    let task = json!({ "tasks": [{ "prompt": "canary-prompt", "provider": "claude", "machineId": "m" }] });
    let (token, path) = (cast.owner.token.as_str(), "/v1/orchestrator/runs".to_owned());
    let made = client.call(Call { who: "owner", token, method: "POST", path, body: Some(task), expected: &[] }).await;
    let made = made.context("no run was made")?;
    let (run, task) = (made.text("/id").context("no run")?, made.text("/tasks/0/id").context("no task")?);
    let run = format!("/v1/orchestrator/runs/{run}");
    let stream = (format!("/v3/sessions/{}/messages/stream", cast.first), Ending::Hint);
    let pend = (format!("{run}/pend?timeoutMs=60000"), Ending::Answer);
    let output = (format!("{run}/tasks/{task}/output?follow=true"), Ending::End);
    let events = (format!("{run}/events"), Ending::Hint);
    let everything = vec![stream.clone(), pend.clone(), output.clone(), events.clone()];
    let page = format!("/v3/sessions/{}/messages?limit=20", cast.first);
    let visits = [
        ("/v1/account".to_owned(), Vec::new()),
        ("/v1/machines".to_owned(), Vec::new()),
        (page.clone(), vec![stream]),
        (run, vec![pend, output, events]),
        (page, everything),
    ];
    let mut visits: Vec<Visit> = (0..)
        .zip(visits)
        .map(|(service, (path, waits))| Visit { service, token: cast.owner.token.clone(), path, waits })
        .collect();
    visits.shuffle(random);
    let mut faults = Vec::new();
    for visit in visits {
        let signal = if random.gen_bool(0.5) { Signal::SIGTERM } else { Signal::SIGINT };
        faults.extend(town.drain(&visit, signal).await?);
    }
    Ok(faults)
}

/// The whole log of each session, from the beginning.
async fn read_all(client: &Client, token: &str, sessions: &[String]) -> Result<Stored> {
    let mut stored = HashMap::new();
    for session in sessions {
        let mut log: Vec<Told> = Vec::new();
        loop {
            let after = log.last().map_or(0, |last| last.seq);
            let path = format!("/v3/sessions/{session}/messages?after={after}&limit=500");
            let call = Call { who: "checker", token, method: "GET", path, body: None, expected: &[] };
            let page = client.call(call).await.filter(|page| page.status == 200);
            let page = page.context("a page was not given although the town is at rest")?;
            let told = Told::page(session, &page.body);
            if told.is_empty() {
                break;
            }
            log.extend(told);
        }
        stored.insert(session.clone(), log);
    }
    Ok(stored)
}
