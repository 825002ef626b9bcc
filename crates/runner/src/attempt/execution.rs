//! One start of an agent for an attempt: it is driven to its end, or stopped at the first reason.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ensemble_agent::{Command, Event};
use ensemble_host::drain::Phase;
use ensemble_host::{Agent, Happened};
use ensemble_process::Exit;
use ensemble_process::disk::on_disk;
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::heartbeat::{Heartbeat, LeaseState};
use super::turn::{Do, Turn};
use crate::outcome::Stop;
use crate::spool::{OutputSpool, Record};

/// An agent that has nothing to do any more ends by itself within this time, or is ended.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What every start of an attempt has.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) context: &'a Context,
    pub(super) heartbeat: &'a Heartbeat,
    pub(super) record: &'a Record,
    pub(super) output: &'a Arc<OutputSpool>,
    pub(super) deadline: Instant,
}

/// One start of the agent.
pub(super) struct Execution<'a> {
    around: Around<'a>,
    agent: Agent,
    turn: Turn,
    /// The session that the record has.
    saved_session: Option<String>,
    /// The agent has nothing to do any more, and is ended at this time.
    ends_at: Option<Instant>,
}

/// How the agent has ended. No process of it is left.
pub(super) struct Over {
    pub(super) turn: Turn,
    pub(super) why: Why,
    /// `None`: the runner has ended an agent that had nothing to do any more. The error says why it was not started.
    pub(super) exit: Option<Result<Exit, String>>,
    /// The end of its standard error.
    pub(super) stderr: String,
}

/// Why the agent has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Exited,
    Stopped(Stop),
    LeaseLost,
}

impl<'a> Execution<'a> {
    pub(super) fn new(around: Around<'a>, agent: Agent, turn: Turn) -> Self {
        Self { around, agent, turn, saved_session: None, ends_at: None }
    }

    /// Waits until the agent ends, and stops it at the first reason to do so. A lost lease overrides every other reason.
    pub(super) async fn run(mut self) -> Over {
        let Around { context, heartbeat, output, deadline, .. } = self.around;
        let timing = &context.config.timing;
        let (mut why, mut was_idle) = (Why::Exited, false);
        let ready_by = Instant::now() + timing.ready_within;
        loop {
            let runs = why == Why::Exited;
            let idle_until = self.ends_at.filter(|_| runs && !was_idle);
            let (next, grace) = tokio::select! {
                happened = next(&mut self.agent, output) => match happened {
                    Happened::Lines(lines) => match self.lines(lines).await.filter(|()| runs) {
                        Some(()) => (Why::Stopped(Stop::Cost), timing.term_grace),
                        None => continue,
                    },
                    Happened::Ended(exit) => return self.over(why, exit, was_idle).await,
                },
                () = heartbeat.reached(LeaseState::Lost), if why != Why::LeaseLost => (Why::LeaseLost, timing.lost_grace),
                () = heartbeat.reached(LeaseState::CancelRequested), if runs => (Why::Stopped(Stop::Cancel), timing.term_grace),
                () = sleep_until(deadline), if runs => (Why::Stopped(Stop::Timeout), timing.term_grace),
                () = context.drain.reached(Phase::HandingBack), if runs => (Why::Stopped(Stop::HandBack), timing.term_grace),
                () = sleep_until(ready_by), if runs && !was_idle && self.turn.is_starting() => {
                    self.turn.not_ready(timing.ready_within);
                    was_idle = true;
                    self.agent.stop(timing.term_grace).await;
                    continue;
                }
                () = sleep_until(idle_until.unwrap_or(deadline)), if idle_until.is_some() => {
                    was_idle = true;
                    self.agent.stop(timing.term_grace).await;
                    continue;
                }
            };
            why = next;
            self.agent.stop(grace).await;
        }
    }

    /// Some: it has cost more than it may.
    async fn lines(&mut self, lines: Vec<ensemble_agent::Line>) -> Option<()> {
        let mut too_expensive = None;
        for line in lines {
            let mut events: VecDeque<Event> = self.agent.line(&line).await.into();
            while let Some(event) = events.pop_front() {
                match self.turn.event(event) {
                    Some(Do::Tell(command)) => events.extend(self.tell(command).await),
                    Some(Do::End) => events.extend(self.end().await),
                    Some(Do::TooExpensive) => too_expensive = Some(()),
                    None => {}
                }
            }
        }
        append(self.around.output, self.turn.take_text()).await;
        self.save_session().await;
        too_expensive
    }

    async fn tell(&mut self, command: Command) -> Vec<Event> {
        match self.agent.command(command).await {
            Ok(events) => events,
            Err(why) => {
                self.turn.not_taken(&format!("The agent does not take an order: {why}."));
                self.end().await
            }
        }
    }

    async fn end(&mut self) -> Vec<Event> {
        self.ends_at = self.ends_at.or(Some(Instant::now() + ENDS_WITHIN));
        // No driver refuses it.
        self.agent.command(Command::Stop).await.unwrap_or_default()
    }

    async fn over(mut self, why: Why, exit: ensemble_agent::Exit, was_idle: bool) -> Over {
        // What was open is closed by the end, which the exit says already.
        for event in self.agent.exited(&exit) {
            if let Event::ResumeFailed(_) = event {
                self.turn.event(event);
            }
        }
        append(self.around.output, self.turn.take_text()).await;
        self.remember_session().await;
        let ended = self.agent.exit();
        Over { turn: self.turn, why, exit: (!was_idle).then_some(ended), stderr: exit.stderr }
    }

    /// Saves the id of the agent's conversation as soon as it is known, so that a later runner can report it.
    async fn save_session(&mut self) {
        let Some(id) = self.turn.session().filter(|id| self.saved_session.as_deref() != Some(id)) else { return };
        let (id, record) = (id.to_owned(), self.around.record.clone());
        let (lease, session) = (record.lease(), id.clone());
        if let Err(error) = on_disk(move || record.save_session(&session)).await {
            tracing::warn!(lease.id = %lease, "Cannot save the provider's session: {error}");
        }
        self.around.heartbeat.set_session(&id);
        self.saved_session = Some(id);
        self.remember_session().await;
    }

    /// The next attempt resumes only a conversation in which this machine has worked on the task.
    async fn remember_session(&mut self) {
        let owner = self.around.context.owner.borrow().clone();
        if let (Some(session), Some(owner)) = (self.turn.session(), owner) {
            owner.worked_in(self.around.record.task(), session).await;
        }
    }
}

/// The agent has to wait while its output does not get to the server.
async fn next(agent: &mut Agent, output: &OutputSpool) -> Happened {
    tokio::select! {
        biased;
        () = output.wait_for_room() => {}
        happened = agent.next(false) => return happened,
    }
    agent.next(true).await
}

/// Writes to the spool on a blocking thread, so that other tasks of this thread can continue.
pub(super) async fn append(spool: &Arc<OutputSpool>, text: String) {
    if text.is_empty() {
        return;
    }
    let spool = spool.clone();
    if let Err(error) = on_disk(move || spool.append(&text)).await {
        tracing::error!("Cannot store the output of a program: {error}");
    }
}
