//! A device of an account is removed while fifty sessions of one computer write: how long after the computer has the new device list
//! each of them has a message under a key that the removed device does not have.

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ensemble_client::SessionEvent;
use ensemble_protocol::transcript::body::Content;
use ensemble_types::ids::SessionId;
use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;

use super::fixture::Fixture;
use super::live_agent::now;
use super::live_host::{Arrived, Attached, Computer};
use super::removal::add_device;
use super::run_latency::percentile;
use super::runs::prepare;
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const SESSIONS: usize = 50;
/// The most that a host runs.
const MOST_AGENTS: usize = 64;
/// An agent writes this often, for longer than the command needs until the list is changed.
const WORK: &str = "lines 150";
const SOON: Duration = Duration::from_secs(120);

type Events = Pin<Box<dyn Stream<Item = ensemble_client::Result<SessionEvent>> + Send>>;

pub(crate) fn after_a_removal(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let services = prepare(machine, &fixture)?;
    let computer = Computer::start(machine, &services.edge, "first-key", MOST_AGENTS)?;
    let sessions = computer.many_sessions(SESSIONS)?;
    let mut latencies: [Rounds; 2] = Default::default();
    for _ in 0..options.rounds.min(3) {
        let late = one_round(machine, &computer, &sessions)?;
        for (rounds, percent) in latencies.iter_mut().zip([50, 99]) {
            rounds.push(percentile(&late, percent)?);
        }
    }
    let [median, tail] = latencies;
    let name = format!("first key, {SESSIONS} sessions: the new device list → a message under the new key");
    report.alone(&format!("{name}, p50"), "ms", median, Target::None);
    report.alone(&format!("{name}, p99"), "ms", tail, Target::AtMost(1_000.0));
    Ok(())
}

/// Removes a device while all agents write. Milliseconds for each session.
fn one_round(machine: &Machine, computer: &Computer, sessions: &[SessionId]) -> Result<Vec<f64>> {
    let lost = machine.runtime.block_on(add_device(computer))?;
    let begun = try_join_all(sessions.iter().map(|id| begin(computer, *id)));
    let begun =
        machine.runtime.block_on(async { timeout(SOON, begun).await }).context("some agents do not write")??;
    let first = try_join_all(begun.into_iter().map(|(id, attached, events)| first_key(computer, id, attached, events)));
    let arrived = std::thread::scope(|threads| {
        let removed = threads.spawn(|| computer.ensemble(&["devices", "remove", &lost, "--yes"]));
        let arrived = machine.runtime.block_on(async { timeout(SOON, first).await });
        removed.join().map_err(|_| anyhow!("a thread panicked"))??;
        arrived.context("some sessions get no message under a new key")?
    })?;
    let listed = computer.listed_at()?;
    ensure!(arrived.iter().all(|at| *at >= listed), "a new key is older than the list");
    Ok(arrived.into_iter().map(|at| at - listed).collect())
}

/// Has the agent write, and waits until it does.
async fn begin(computer: &Computer, id: SessionId) -> Result<(SessionId, Attached<'_>, Events)> {
    let attached = computer.attach(id).await?;
    let mut events: Events = Box::pin(attached.new_events());
    attached.prompt(WORK.to_owned()).await?;
    attached.until(&mut events, |content| matches!(content, Content::Text(_))).await?;
    Ok((id, attached, events))
}

/// When the first message of the machine under a newer key has arrived.
async fn first_key(computer: &Computer, id: SessionId, attached: Attached<'_>, mut events: Events) -> Result<f64> {
    while let Some(event) = events.next().await {
        let event = event?;
        if attached.is_under_newer_key(&event) {
            let at = now();
            let opened = computer.attach(id).await?.open(&event)?;
            ensure!(matches!(opened, Arrived::Message(..)), "it is no message");
            return Ok(at);
        }
    }
    bail!("the stream has ended")
}
