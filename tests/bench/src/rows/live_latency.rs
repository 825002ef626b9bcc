//! A live session through the edge: the release host, a scripted agent and clients that open and check what they get. How late a card,
//! an answer and a first token arrive, with one session and with twenty at once, and what the host needs for ten of them.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ensemble_transcript::body::{Answer, Content, Control, Message, Permission, Prompt};
use ensemble_transcript::words::{Phase, ReceiptOutcome, TurnState, When};
use ensemble_types::ids::SessionId;
use futures_util::StreamExt;
use futures_util::future::try_join_all;

use super::fixture::Fixture;
use super::live_agent::now;
use super::live_host::{Arrived, Attached, Computer};
use super::run_latency::percentile;
use super::runs::prepare;
use super::scripted_claude::{ANSWERED, ASKED, TOKEN};
use crate::machine::{Machine, Options, memory_mib, resident_mib};
use crate::stats::Rounds;
use crate::table::{Report, Target};

/// A person may send 30 commands a minute to a session, and two prompts and a stop are among them.
const ASKS: usize = 20;
const TOKENS: usize = 3;
const MANY: usize = 20;
const LONG: u32 = 10_000;
const IN_MEMORY: usize = 10;
/// In proc(5).
const ANONYMOUS: &str = "RssAnon:";
const SOON: Duration = Duration::from_secs(120);

/// Milliseconds.
#[derive(Default)]
struct Seen {
    cards: Vec<f64>,
    answers: Vec<f64>,
    tokens: Vec<f64>,
}

#[derive(Default)]
struct Figures {
    card: [Rounds; 2],
    answer: [Rounds; 2],
    token: Rounds,
}

pub(crate) fn latency(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let services = prepare(machine, &fixture)?;
    let computer = Computer::start(machine, &services.edge)?;
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
        let latencies =
            [("the agent's request → a client's card", figures.card), ("an answer → the agent", figures.answer)];
        for (what, rounds) in latencies {
            for (rounds, (percent, bound)) in rounds.into_iter().zip([("p50", 100.0), ("p99", 500.0)]) {
                report.alone(&format!("live, {name}: {what}, {percent}"), "ms", rounds, Target::AtMost(bound));
            }
        }
        let name = format!("live, {name}: first token → first live frame, p99");
        report.alone(&name, "ms", figures.token, Target::AtMost(300.0));
    }
    let [host, host_own, guard, guard_own] = memories;
    report.alone("live: own memory of the host, ten sessions", "MiB", host_own, Target::AtMost(30.0));
    report.alone("live: with the program's file, which all share", "MiB", host, Target::None);
    report.alone("live: own memory of its largest guard", "MiB", guard_own, Target::AtMost(3.0));
    report.alone("live: with the program's file, which all share", "MiB", guard, Target::None);
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
    let text = format!("many {LONG}");
    attached.send(Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next })).await?;
    let mut events = pin!(attached.events());
    while let Some(event) = events.next().await {
        if let Arrived::Message(message, _) = attached.open(&event?)?
            && matches!(&message.content, Content::Turn(turn) if turn.state == TurnState::Ended)
        {
            return Ok(());
        }
    }
    bail!("the stream has ended")
}

/// Starts so many sessions, measures all of them at once and ends them.
fn measured(machine: &Machine, computer: &Computer, count: usize) -> Result<Seen> {
    let sessions = computer.sessions(count)?;
    let all = try_join_all(sessions.into_iter().map(|id| session(computer, id)));
    let all = machine.runtime.block_on(async { tokio::time::timeout(SOON, all).await });
    let mut sum = Seen::default();
    for seen in all.context("the sessions did not end in time")?? {
        sum.cards.extend(seen.cards);
        sum.answers.extend(seen.answers);
        sum.tokens.extend(seen.tokens);
    }
    let none_from_the_future = |late: &[f64]| late.iter().all(|late| *late >= 0.0);
    ensure!(
        [&sum.cards, &sum.answers, &sum.tokens].into_iter().all(|late| none_from_the_future(late)),
        "clocks differ"
    );
    ensure!(sum.cards.len() == ASKS * count && sum.answers.len() == ASKS * count, "some cards or answers are missing");
    ensure!(sum.tokens.len() == TOKENS * count, "some texts are missing");
    Ok(sum)
}

/// One session from its first prompt to its end.
async fn session(computer: &Computer, id: SessionId) -> Result<Seen> {
    let attached = computer.attach(id).await?;
    let mut events = pin!(attached.events());
    let mut client = Watched { attached, seen: Seen::default(), sent_at: 0.0, tokens: HashSet::new(), turns: 0 };
    client.prompt(format!("ask {ASKS}")).await?;
    loop {
        let event = events.next().await.context("the stream has ended")??;
        match client.attached.open(&event)? {
            Arrived::Message(message, digest) => {
                if client.message(*message, digest).await? {
                    return Ok(client.seen);
                }
            }
            Arrived::Frame(frame) => client.token(&frame.text),
            Arrived::Other => {}
        }
    }
}

/// A client, and what it has measured.
struct Watched<'a> {
    attached: Attached<'a>,
    seen: Seen,
    /// When the last answer was sent.
    sent_at: f64,
    /// The first tokens that were seen, because the end of a text shows them again.
    tokens: HashSet<String>,
    turns: usize,
}

impl Watched<'_> {
    async fn prompt(&self, text: String) -> Result<()> {
        self.attached.send(Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next })).await
    }

    /// True: the session has ended.
    async fn message(&mut self, message: Message, digest: String) -> Result<bool> {
        let at = now();
        match message.content {
            Content::Permission(permission) => self.card(*permission, digest, at).await?,
            Content::Text(part) => {
                self.answered(&part.text);
                self.token(&part.text);
            }
            Content::Turn(turn) if turn.state == TurnState::Ended => {
                self.turns += 1;
                match self.turns {
                    1 => self.prompt(format!("say {TOKENS}")).await?,
                    _ => self.attached.send(Content::Control(Control::Stop)).await?,
                }
            }
            Content::Receipt(receipt) if receipt.outcome == ReceiptOutcome::Rejected => {
                bail!("a command was rejected: {:?} {:?}", receipt.code, receipt.text)
            }
            Content::Error(failure) => bail!("the agent failed: {}", failure.text),
            Content::State(state) => return Ok(state.phase == Phase::Ended),
            _ => {}
        }
        Ok(false)
    }

    async fn card(&mut self, card: Permission, digest: String, at: f64) -> Result<()> {
        let asked_at = time(&card.detail, ASKED).context("a card without a time")?.1;
        self.seen.cards.push(at - asked_at);
        self.answered(&card.detail);
        let option = card.options.first().context("a card without options")?;
        let (option_id, request_id) = (Some(option.option_id.clone()), card.request_id);
        self.sent_at = now();
        let answer = Answer { request_id, digest, option_id, answers: None, message: None };
        self.attached.send(Content::Answer(answer)).await
    }

    fn answered(&mut self, text: &str) {
        if let Some((_, answered_at)) = time(text, ANSWERED) {
            self.seen.answers.push(answered_at - self.sent_at);
        }
    }

    fn token(&mut self, text: &str) {
        let at = now();
        if let Some((token, said_at)) = time(text, TOKEN)
            && self.tokens.insert(token.to_owned())
        {
            self.seen.tokens.push(at - said_at);
        }
    }
}

/// The time after a name: as it is written, and in milliseconds.
fn time<'t>(text: &'t str, name: &str) -> Option<(&'t str, f64)> {
    let written = text.split_once(name)?.1.split_whitespace().next()?;
    Some((written, written.parse().ok()?))
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
    let mut events = pin!(attached.events());
    while let Some(event) = events.next().await {
        if let Arrived::Message(message, _) = attached.open(&event?)?
            && matches!(&message.content, Content::State(state) if state.phase == phase)
        {
            return Ok(());
        }
    }
    bail!("the stream has ended")
}

/// The processes that this one has started (`PPid` of proc(5)).
fn children(parent: u32) -> Result<Vec<u32>> {
    let wanted = format!("PPid:\t{parent}");
    let processes = std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A process may end while it is looked at.
    let is_child = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == wanted)
    };
    Ok(processes.filter(is_child).collect())
}
