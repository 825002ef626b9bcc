//! Two hundred live sessions on one computer. Fifty of their agents work at once, and twenty clients look at those and answer them:
//! how late cards are then, whether anything is missing, and what the host needs.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_client::Client;
use ensemble_types::ids::SessionId;
use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::fixture::Fixture;
use super::live_client::{ASKS, Seen, TOKENS, Watched, is_end_of_turn};
use super::live_host::Computer;
use super::run_latency::percentile;
use super::runs::prepare;
use crate::machine::{ANONYMOUS, Machine, Options, memory_mib, resident_mib};
use crate::started::children;
use crate::stats::Rounds;
use crate::table::{Report, Target};

const SESSIONS: usize = 200;
/// Each round has the next ones.
const AT_WORK: usize = 50;
const CLIENTS: usize = 20;
/// The most agents that run. Those of the other sessions sleep.
const MOST_AGENTS: usize = 64;
/// What a client sees of a session in one round: cards, answers and texts.
const OF_EACH: usize = 2 * ASKS + TOKENS;
/// Rounds until there are sessions that had one already.
const FRESH_ROUNDS: usize = SESSIONS / AT_WORK;
/// Until a person may send a session as many commands again as a round has.
const REST: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(120);

pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let services = prepare(machine, &fixture)?;
    let computer = Computer::start(machine, &services.edge, "live-many", MOST_AGENTS)?;
    let sessions = computer.many_sessions(SESSIONS)?;
    let clients = (0..CLIENTS).map(|_| computer.another_client()).collect::<Result<Vec<_>>>()?;
    let mut latencies: [[Rounds; 2]; 3] = Default::default();
    let (mut missing, mut memories) = (Rounds::default(), <[Rounds; 2]>::default());
    let mut ended: Vec<Instant> = Vec::new();
    for round in 0..options.rounds {
        if let Some(earlier) = round.checked_sub(FRESH_ROUNDS).and_then(|at| ended.get(at)) {
            std::thread::sleep((*earlier + REST).saturating_duration_since(Instant::now()));
        }
        let at_work = sessions.iter().copied().cycle().skip(round * AT_WORK).take(AT_WORK);
        let looked_at: Vec<(SessionId, &Client)> = at_work.zip(clients.iter().cycle()).collect();
        let (seen, memory) = machine.runtime.block_on(one_round(&computer, &looked_at))?;
        ended.push(Instant::now());
        let all = [seen.cards, seen.answers, seen.tokens];
        let sent = [ASKS, ASKS, TOKENS].map(|of_each| of_each * AT_WORK);
        let lost: Option<usize> = sent.iter().zip(&all).map(|(sent, seen)| sent.checked_sub(seen.len())).sum();
        missing.push(lost.context("something was seen twice")? as f64);
        for (rounds, late) in latencies.iter_mut().zip(all) {
            for (rounds, percent) in rounds.iter_mut().zip([50, 99]) {
                rounds.push(percentile(&late, percent)?);
            }
        }
        for (rounds, memory) in memories.iter_mut().zip(memory) {
            rounds.push(memory);
        }
    }
    let active = machine.runtime.block_on(computer.active_sessions())?;
    ensure!(active == SESSIONS, "{active} of {SESSIONS} sessions are left");
    let names = ["the agent's request → a client's card", "an answer → the agent", "first token → first live frame"];
    let targets = [Target::AtMost(250.0), Target::None, Target::None];
    for ((name, target), [median, tail]) in names.into_iter().zip(targets).zip(latencies) {
        report.alone(&format!("live, 200 sessions: {name}, p50"), "ms", median, Target::None);
        report.alone(&format!("live, 200 sessions: {name}, p99"), "ms", tail, target);
    }
    let name = format!("live, 200 sessions: missing of {} cards, answers and texts", OF_EACH * AT_WORK);
    report.alone(&name, "", missing, Target::AtMost(0.0));
    let [own, whole] = memories;
    report.alone("live, 200 sessions: most own memory of the host", "MiB", own, Target::AtMost(60.0));
    report.alone("live, 200 sessions: the same with the program's file", "MiB", whole, Target::None);
    Ok(())
}

/// What the clients see while their agents work, and the most memory that the host has meanwhile: its own and with the program's file.
async fn one_round(computer: &Computer, looked_at: &[(SessionId, &Client)]) -> Result<(Seen, [f64; 2])> {
    let awake = try_join_all(looked_at.iter().map(|(id, client)| wake(computer, *id, client)));
    timeout(SOON, awake).await.context("the agents do not wake up in time")??;
    let host = computer.host()?;
    let agents = children(host)?.len();
    ensure!(agents >= AT_WORK, "{agents} guards for {AT_WORK} agents");
    let mut work = pin!(try_join_all(looked_at.iter().map(|(id, client)| work(computer, *id, client))));
    let mut sample = tokio::time::interval(Duration::from_millis(200));
    let (mut sum, mut most) = (Seen::default(), [0.0_f64; 2]);
    loop {
        tokio::select! {
            all = &mut work => {
                for seen in all? {
                    sum.add(seen)?;
                }
                return Ok((sum, most));
            }
            _ = sample.tick() => most = [most[0].max(memory_mib(host, ANONYMOUS)?), most[1].max(resident_mib(host)?)],
        }
    }
}

/// Starts the agent of a session if it sleeps, so that the work of all agents begins at once.
async fn wake(computer: &Computer, id: SessionId, client: &Client) -> Result<()> {
    let attached = computer.attach_with(id, client).await?;
    attached.prompt("many 1".to_owned()).await?;
    attached.until(&mut pin!(attached.new_events()), is_end_of_turn).await
}

/// What a client sees of one session. What has not come when the time is up is missing.
async fn work(computer: &Computer, id: SessionId, client: &Client) -> Result<Seen> {
    let attached = computer.attach_with(id, client).await?;
    let mut events = pin!(attached.new_events());
    let mut client = Watched::new(attached);
    if let Ok(done) = timeout(SOON, client.watch(&mut events)).await {
        done?;
    }
    Ok(client.seen)
}
