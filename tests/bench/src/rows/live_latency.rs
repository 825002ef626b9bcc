//! A live session through the edge: the release host, a scripted agent and clients that open and check what they get. How late a card,
//! an answer and a first token arrive, with one session and with twenty at once, and what the host needs for ten of them.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ensemble_protocol::transcript::body::{Content, Control};
use ensemble_protocol::transcript::words::Phase;
use ensemble_types::ids::SessionId;
use futures_util::future::try_join_all;

use super::fixture::Fixture;
use super::live_client::{ASKS, Seen, TOKENS, Watched, is_end_of_turn};
use super::live_host::Computer;
use super::run_latency::percentile;
use super::runs::prepare;
use crate::machine::{ANONYMOUS, Machine, Options, memory_mib, resident_mib};
use crate::started::children;
use crate::stats::Rounds;
use crate::table::{Report, Target};

const MANY: usize = 20;
const LONG: u32 = 10_000;
const IN_MEMORY: usize = 10;
const SOON: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Figures {
    card: [Rounds; 2],
    answer: [Rounds; 2],
    token: Rounds,
}

pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let services = prepare(machine, &fixture)?;
    let computer = Computer::start(machine, &services.edge, "live-latency", 32)?;
    let (mut one, mut many) = (Figures::default(), Figures::default());
    let mut memories: [Rounds; 4] = Default::default();
    for _ in 0..options.rounds {
        for (rounds, memory) in memories.iter_mut().zip(memory(machine, &computer)?) {
            rounds.push(memory);
        }
        for (count, figures) in [(1, &mut one), (MANY, &mut many)] {
            let seen = measured(machine, &computer, count)?;
            for (rounds, percent) in figures.card.iter_mut().zip([50, 99]) {
                rounds.push(percentile(&seen.cards, percent)?);
            }
            for (rounds, percent) in figures.answer.iter_mut().zip([50, 99]) {
                rounds.push(percentile(&seen.answers, percent)?);
            }
            figures.token.push(percentile(&seen.tokens, 99)?);
        }
    }
    report.alone(
        "live: attach → the end of 10,000 messages",
        "ms",
        attach(machine, &computer, options)?,
        Target::AtMost(500.0),
    );
    for (name, figures) in [("1 session", one), ("20 sessions", many)] {
        let latencies = [
            ("the agent's request → a client's card", figures.card, 100.0),
            ("an answer → the agent", figures.answer, 500.0),
        ];
        for (what, rounds, late) in latencies {
            for (rounds, (percent, bound)) in rounds.into_iter().zip([("p50", 100.0), ("p99", late)]) {
                report.alone(&format!("live, {name}: {what}, {percent}"), "ms", rounds, Target::AtMost(bound));
            }
        }
        let name = format!("live, {name}: first token → first live frame, p99");
        report.alone(&name, "ms", figures.token, Target::AtMost(300.0));
    }
    let [host, host_own, guard, guard_own] = memories;
    report.alone("live: own memory of the host, ten sessions", "MiB", host_own, Target::AtMost(30.0));
    report.alone("live: the host with the program's file, which all share", "MiB", host, Target::None);
    report.alone("live: own memory of its largest guard", "MiB", guard_own, Target::AtMost(3.0));
    report.alone("live: that guard with the program's file, which all share", "MiB", guard, Target::None);
    Ok(())
}

/// How long the program needs to show the end of a long session.
fn attach(machine: &Machine, computer: &Computer, options: &Options) -> Result<Rounds> {
    let id = computer.sessions(1)?.pop().context("no session")?;
    let said = machine.runtime.block_on(async { tokio::time::timeout(SOON, says(computer, id)).await });
    said.context("the messages do not come")??;
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds {
        rounds.push(computer.shows(id, &format!("line {LONG}"))?);
    }
    Ok(rounds)
}

/// Has the agent say many texts, and waits for the last of them.
async fn says(computer: &Computer, id: SessionId) -> Result<()> {
    let attached = computer.attach(id).await?;
    attached.prompt(format!("many {LONG}")).await?;
    attached.until(&mut pin!(attached.events()), is_end_of_turn).await
}

/// Starts `count` sessions, measures all of them at once and ends them.
fn measured(machine: &Machine, computer: &Computer, count: usize) -> Result<Seen> {
    let sessions = computer.sessions(count)?;
    let all = try_join_all(sessions.into_iter().map(|id| session(computer, id)));
    let all = machine.runtime.block_on(async { tokio::time::timeout(SOON, all).await });
    let mut sum = Seen::default();
    for seen in all.context("the sessions did not end in time")?? {
        sum.add(seen)?;
    }
    ensure!(sum.cards.len() == ASKS * count && sum.answers.len() == ASKS * count, "some cards or answers are missing");
    ensure!(sum.tokens.len() == TOKENS * count, "some texts are missing");
    Ok(sum)
}

/// One session from its first prompt to its end.
async fn session(computer: &Computer, id: SessionId) -> Result<Seen> {
    let attached = computer.attach(id).await?;
    let mut events = pin!(attached.events());
    let mut client = Watched::new(attached);
    client.watch(&mut events).await?;
    client.attached.send(Content::Control(Control::Stop)).await?;
    client.attached.until(&mut events, is_phase(Phase::Ended)).await?;
    Ok(client.seen)
}

/// Resident memory in MiB of the host with ten sessions whose agents run, the part that no other process shares, and the same of its
/// largest guard. The program's file is in memory once for all of them.
fn memory(machine: &Machine, computer: &Computer) -> Result<[f64; 4]> {
    let sessions = computer.sessions(IN_MEMORY)?;
    let ready = try_join_all(sessions.iter().map(|id| until(computer, *id, Phase::Idle)));
    machine.runtime.block_on(async { tokio::time::timeout(SOON, ready).await }).context("no agents")??;
    let host = computer.host()?;
    let guards = children(host)?;
    ensure!(guards.len() >= IN_MEMORY, "{} guards for {IN_MEMORY} agents", guards.len());
    let largest = |name: &str| {
        let sizes = guards.iter().map(|guard| memory_mib(*guard, name)).collect::<Result<Vec<_>>>()?;
        Ok::<_, anyhow::Error>(sizes.into_iter().fold(0.0, f64::max))
    };
    let memory = [resident_mib(host)?, memory_mib(host, ANONYMOUS)?, largest("VmRSS:")?, largest(ANONYMOUS)?];
    let stopped = try_join_all(sessions.iter().map(|id| async {
        computer.attach(*id).await?.send(Content::Control(Control::Stop)).await?;
        until(computer, *id, Phase::Ended).await
    }));
    machine.runtime.block_on(async { tokio::time::timeout(SOON, stopped).await }).context("no end")??;
    Ok(memory)
}

/// Follows a session until its machine says that it is in this phase.
async fn until(computer: &Computer, id: SessionId, phase: Phase) -> Result<()> {
    let attached = computer.attach(id).await?;
    attached.until(&mut pin!(attached.events()), is_phase(phase)).await
}

fn is_phase(phase: Phase) -> impl Fn(&Content) -> bool {
    move |content| matches!(content, Content::State(state) if state.phase == phase)
}
