//! What a host decides in one session, without I/O: what the agent does becomes messages, and what people send becomes orders to the
//! agent.
//!
//! Every call leaves its [`Effects`]. The caller writes the changes to disk first, then carries out the rest.

mod agent;
mod commands;
mod diffs;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ensemble_agent::{Abilities, Driver, Exit, Kind, Line, Output, Prompt, Start};
use ensemble_transcript::body::{
    Choice, Content, ContextUse, Failure, KnownList, Message, Permission, Resolved, SlashCommand, State, ToolCall, Turn,
};
use ensemble_transcript::bounds::MOST_SIGNED;
use ensemble_transcript::rules::{Access, Memory, OpenRequest, Rules};
use ensemble_transcript::words::{Cause, ErrorCode, Mode, Outcome, Phase, StopReason, ToolStatus, TurnState};
use ensemble_transcript::{Frame, digest};
use ensemble_types::attention::AttentionKind;
use ensemble_types::ids::{UserId, unique};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::kept::{Change, Kept, Outgoing, Queued, RunningTurn};
use parts::Parts;

pub(crate) use commands::Command;

/// Prompts that may wait in a session.
const MOST_QUEUED: usize = 100;
/// An agent that ends by itself so often, and begins no turn, is not started again until somebody asks for it.
const MOST_CRASHES: u32 = 3;

/// One session.
pub(crate) struct Core {
    pub(crate) kept: Kept,
    kind: Kind,
    driver_of: DriverOf,
    as_root: bool,
    rules: Rules,
    /// The newest device list of the owner.
    list: KnownList,
    key_epoch: u32,
    branch: Option<String>,
    /// `None`: the agent's process does not run.
    driver: Option<Box<dyn Driver>>,
    abilities: Option<Abilities>,
    is_ready: bool,
    /// The `localId` of the prompt that the agent has and has not begun. It stays in the queue until then.
    in_flight: Option<String>,
    open: BTreeMap<String, Open>,
    parts: Parts,
    crashes: u32,
    /// No new turn begins.
    is_draining: bool,
    is_stopping: bool,
    is_interrupting: bool,
    choices: Choices,
    said: Option<State>,
    wants: Wants,
    seen_end: Option<AttentionKind>,
    now: Timestamp,
    effects: Effects,
}

/// What a call wants done, in this order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// To be on disk before the rest.
    pub(crate) changes: Vec<Change>,
    /// The agent is to be started, in this way.
    pub(crate) start: Option<Start>,
    /// For the agent's standard input, each without its line feed.
    pub(crate) lines: Vec<String>,
    /// The agent's standard input is to be closed after the lines.
    pub(crate) close: bool,
    /// What the session wants from its people has changed.
    pub(crate) wants: Option<Wants>,
}

/// What a session wants from its people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) kind: AttentionKind,
    pub(crate) open: u8,
    /// Another one for each thing that it wants.
    pub(crate) count: u64,
}

/// What can be chosen, as the agent says it.
#[derive(Default)]
struct Choices {
    modes: Vec<Choice>,
    models: Vec<Choice>,
    commands: Vec<SlashCommand>,
    context: Option<ContextUse>,
}

/// A request that is open.
struct Open {
    asked: OpenRequest,
    about: About,
}

/// What an answer does.
enum About {
    /// The agent waits for it: the driver's own name for the request, and what was shown as a change of a file.
    Agent {
        request: String,
        change: Option<diffs::Proposed>,
        permission: Box<Permission>,
    },
    Question {
        request: String,
    },
    /// A guest's prompt waits for the owner.
    Guest {
        prompt: Queued,
        key: String,
    },
}

/// Makes the driver of an agent.
pub(crate) type DriverOf = fn(Kind, Start) -> Box<dyn Driver>;

/// Who the session belongs to, and how its agent is driven.
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) driver_of: DriverOf,
    pub(crate) owner: UserId,
    pub(crate) list: KnownList,
    pub(crate) key_epoch: u32,
    pub(crate) branch: Option<String>,
    pub(crate) as_root: bool,
}

impl Core {
    /// A session as it was kept.
    pub(crate) fn new(kept: Kept, setting: Setting, now: Timestamp) -> Self {
        let Setting { kind, driver_of, owner, list, key_epoch, branch, as_root } = setting;
        let access = Access::of_grants(kept.access.iter().cloned());
        let memory = Memory::of_taken(kept.taken.iter().cloned().map(Into::into), kept.lost);
        Self {
            rules: Rules::kept(owner, access, memory),
            kept,
            kind,
            driver_of,
            as_root,
            list,
            key_epoch,
            branch,
            driver: None,
            abilities: None,
            is_ready: false,
            in_flight: None,
            open: BTreeMap::new(),
            parts: Parts::default(),
            crashes: 0,
            is_draining: false,
            is_stopping: false,
            is_interrupting: false,
            choices: Choices::default(),
            said: None,
            wants: Wants::default(),
            seen_end: None,
            now,
            effects: Effects::default(),
        }
    }

    /// The server has all messages up to this count.
    pub(crate) fn sent(&mut self, n: u64) {
        self.change(Change::Sent(n));
    }

    /// The agent's processes are marked with this.
    pub(crate) fn process(&mut self, id: Uuid) {
        self.change(Change::Process(id));
    }

    /// The changes alone.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.effects.changes)
    }

    /// What the calls since the last one want done.
    pub(crate) fn take_effects(&mut self) -> Effects {
        self.settle();
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub(crate) fn set_list(&mut self, list: KnownList) {
        self.list = list;
    }

    /// The session has a new key.
    pub(crate) fn set_key(&mut self, epoch: u32, sealed: String) {
        if epoch > self.key_epoch {
            self.key_epoch = epoch;
            self.change(Change::HostKey(sealed));
        }
    }

    /// A host process before this one has ended while something was under way. Its agent does not run any more.
    pub(crate) fn recover(&mut self) {
        self.close_open("agent restarted");
        if let Some(turn) = self.kept.turn.clone() {
            let text = "The program that runs the agent on its machine has ended in the middle of a turn. Send a prompt to go on.";
            self.fail(ErrorCode::Crashed, text);
            self.end_turn(turn, StopReason::Error);
        }
    }

    /// Begins: the agent is started, so that people see what can be chosen.
    pub(crate) fn begin(&mut self) {
        self.start();
    }

    /// A line of the agent's standard output.
    pub(crate) fn line(&mut self, line: &Line) {
        if let Some(driver) = &mut self.driver {
            let output = driver.line(line);
            self.take_output(output);
        }
    }

    /// The agent's process has ended.
    pub(crate) fn exited(&mut self, exit: &Exit) {
        let Some(mut driver) = self.driver.take() else { return };
        self.is_ready = false;
        let output = driver.exited(exit);
        self.take_output(Output { lines: Vec::new(), close: false, ..output });
        self.close_open("agent restarted");
        if let Some(turn) = self.kept.turn.clone() {
            self.end_turn(turn, StopReason::Error);
        }
        // A prompt that has not begun still waits.
        self.in_flight = None;
        let was_wanted = std::mem::take(&mut self.is_stopping);
        self.crashes = if was_wanted { 0 } else { self.crashes.saturating_add(1) };
    }

    /// The agent could not be started.
    pub(crate) fn not_started(&mut self, why: &str) {
        self.driver = None;
        self.crashes = MOST_CRASHES;
        self.fail(ErrorCode::Crashed, &format!("The agent could not be started: {why}"));
    }

    /// Ends the agent until somebody sends a prompt. Nothing is done while a turn runs.
    pub(crate) fn park(&mut self) {
        if self.is_idle() && self.abilities.is_some_and(|abilities| abilities.resumes) {
            self.stop_agent();
        }
    }

    /// No turn begins any more. The agent is ended as soon as it is idle.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    pub(crate) fn drains(&self) -> bool {
        self.is_draining
    }

    /// The turn that runs is interrupted.
    pub(crate) fn interrupt(&mut self) {
        if self.has_turn() {
            self.is_interrupting = true;
            self.close_open("the turn was interrupted");
            self.order(ensemble_agent::Command::Interrupt);
        }
    }

    /// An interrupt was ordered, and the turn goes on.
    pub(crate) fn is_interrupting(&self) -> bool {
        self.is_interrupting && self.has_turn()
    }

    /// The agent goes on after an interrupt, so it is about to be ended.
    pub(crate) fn fail_to_interrupt(&mut self) {
        self.is_stopping = true;
        self.fail(
            ErrorCode::Unknown,
            "The agent did not stop when it was interrupted, so it was ended. A prompt starts it again.",
        );
    }

    /// The agent does not become ready, so it is about to be ended.
    pub(crate) fn never_ready(&mut self) {
        self.crashes = MOST_CRASHES;
        self.fail(
            ErrorCode::Crashed,
            "The agent does not answer, so it was ended. Start it by hand on its machine to see why.",
        );
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub(crate) fn runs(&self) -> bool {
        self.driver.is_some()
    }

    pub(crate) fn has_turn(&self) -> bool {
        self.kept.turn.is_some() || self.in_flight.is_some()
    }

    /// The agent runs, and has nothing to do and nothing to ask.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver.is_some() && !self.has_turn() && self.open.is_empty() && self.kept.queue.is_empty()
    }

    /// The newest ends of the texts that have grown since the last call.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        match &self.kept.turn {
            Some(turn) => self.parts.frames(&turn.id),
            None => Vec::new(),
        }
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.kept.turn.is_some() && self.parts.has_grown()
    }

    /// Starts the agent's process, unless it runs.
    fn start(&mut self) {
        if self.driver.is_some() || self.is_draining {
            return;
        }
        let start = Start {
            directory: self.kept.directory.display().to_string(),
            session_id: self.kept.conversation.to_string(),
            mode: self.kept.mode.clone(),
            model: self.kept.model.clone(),
            resume: self.kept.resume.clone(),
            cost_before: self.kept.cost_usd.unwrap_or_default(),
            as_root: self.as_root,
        };
        let mut driver = (self.driver_of)(self.kind, start.clone());
        self.abilities = Some(driver.abilities());
        self.effects.start = Some(start);
        let output = driver.begin();
        self.driver = Some(driver);
        self.take_output(output);
    }

    fn stop_agent(&mut self) {
        self.is_stopping = true;
        self.order(ensemble_agent::Command::Stop);
    }

    /// Gives the agent an order that it may refuse.
    fn order(&mut self, command: ensemble_agent::Command) -> bool {
        match self.driver.as_mut().map(|driver| driver.command(command)) {
            Some(Ok(output)) => {
                self.take_output(output);
                true
            }
            _ => false,
        }
    }

    /// Gives the agent the next prompt, when it can take one.
    fn pump(&mut self) {
        if self.kept.ended || self.is_draining || self.is_stopping || self.has_turn() {
            return;
        }
        let Some(prompt) = self.kept.queue.front().cloned() else { return };
        if self.driver.is_none() {
            if self.crashes < MOST_CRASHES {
                self.start();
            }
            return;
        }
        if !self.is_ready {
            return;
        }
        let id = unique().to_string();
        let order = Prompt { id, text: prompt.text.clone(), attachments: prompt.attachments.clone(), steer: false };
        let Some(driver) = &mut self.driver else { return };
        if let Ok(output) = driver.command(ensemble_agent::Command::Prompt(order)) {
            self.in_flight = Some(prompt.local_id);
            self.seen_end = None;
            self.take_output(output);
        }
    }

    fn begin_turn(&mut self, cause: Cause) {
        let prompt_id = match cause {
            Cause::Prompt => self.in_flight.take(),
            _ => None,
        };
        if let Some(prompt) = &prompt_id {
            self.change(Change::Unqueue(prompt.clone()));
        }
        let turn = RunningTurn { id: unique().to_string(), cause, prompt_id };
        self.parts.clear();
        self.seen_end = None;
        self.crashes = 0;
        self.say_turn(&turn, TurnState::Started, |_| {});
        self.change(Change::Turn(Some(turn)));
    }

    fn end_turn(&mut self, turn: RunningTurn, stop: StopReason) {
        self.finish_turn(turn, |said| said.stop_reason = Some(stop));
    }

    fn finish_turn(&mut self, turn: RunningTurn, fill: impl FnOnce(&mut Turn)) {
        for id in self.kept.tools.clone() {
            let call = ToolCall {
                tool_call_id: id.clone(),
                turn_id: turn.id.clone(),
                status: Some(ToolStatus::Interrupted),
                ..Default::default()
            };
            self.say(Content::ToolCall(Box::new(call)));
            self.change(Change::ToolEnded(id));
        }
        self.parts.clear();
        self.is_interrupting = false;
        self.say_turn(&turn, TurnState::Ended, fill);
        self.change(Change::Turn(None));
    }

    fn say_turn(&mut self, turn: &RunningTurn, state: TurnState, fill: impl FnOnce(&mut Turn)) {
        let mut said = Turn {
            turn_id: turn.id.clone(),
            state,
            cause: turn.cause.clone(),
            prompt_id: turn.prompt_id.clone(),
            stop_reason: None,
            usage: None,
            cost_usd: None,
        };
        fill(&mut said);
        if let Some(stop) = &said.stop_reason {
            let is_bad = matches!(stop, StopReason::Error | StopReason::Limit);
            self.seen_end = Some(if is_bad { AttentionKind::Failed } else { AttentionKind::Finished });
        }
        self.say(Content::Turn(said));
    }

    /// Closes every open request.
    fn close_open(&mut self, reason: &str) {
        for (_, open) in std::mem::take(&mut self.open) {
            self.guest_is_refused(open, reason);
        }
        for request_id in self.kept.open.keys().cloned().collect::<Vec<_>>() {
            self.resolve(Resolved {
                request_id,
                outcome: Outcome::Withdrawn,
                option_id: None,
                by: None,
                reason: Some(reason.to_owned()),
            });
        }
    }

    fn resolve(&mut self, resolved: Resolved) {
        self.open.remove(&resolved.request_id);
        self.change(Change::Close(resolved.request_id.clone()));
        self.say(Content::Resolved(resolved));
    }

    fn fail(&mut self, code: ErrorCode, text: &str) {
        self.say(Content::Error(Failure { code, text: text.to_owned(), retry_at: None }));
    }

    fn change(&mut self, change: Change) {
        self.kept.apply(change.clone());
        self.effects.changes.push(change);
    }

    /// Adds a message. Returns the digest of its body, by which an answer names it.
    fn say(&mut self, content: Content) -> String {
        let n = self.kept.n.saturating_add(1);
        let written = self.message(n, content).write().ok().filter(|body| signed_size(body) <= MOST_SIGNED);
        let body = written.or_else(|| {
            let text = "Something that the agent said is too long to be shown here.".to_owned();
            let failure = Failure { code: ErrorCode::Unknown, text, retry_at: None };
            self.message(n, Content::Error(failure)).write().ok()
        });
        let Some(body) = body else { return String::new() };
        let digest = digest(&body);
        self.change(Change::Say(Outgoing { n, body }));
        digest
    }

    fn message(&self, n: u64, content: Content) -> Message {
        Message { local_id: local_id(n), at: self.now, list: self.list.clone(), n: Some(n), content }
    }

    /// Says what has become different.
    fn settle(&mut self) {
        self.pump();
        if self.is_draining && self.is_idle_but_queue() && !self.is_stopping {
            self.stop_agent();
        }
        let state = self.state();
        if self.said.as_ref() != Some(&state) {
            self.said = Some(state.clone());
            self.say(Content::State(Box::new(state)));
        }
        let wants = self.wants();
        if wants != self.wants {
            self.wants = wants;
            self.effects.wants = Some(wants);
        }
    }

    fn is_idle_but_queue(&self) -> bool {
        self.driver.is_some() && !self.has_turn() && self.open.is_empty()
    }

    fn phase(&self) -> Phase {
        if self.kept.ended {
            Phase::Ended
        } else if self.driver.is_none() {
            Phase::Parked
        } else if !self.open.is_empty() {
            Phase::Waiting
        } else if self.has_turn() {
            Phase::Working
        } else if self.is_ready {
            Phase::Idle
        } else {
            Phase::Starting
        }
    }

    /// The lists of what can be chosen are long, so they are said only while the agent is at rest.
    fn state(&self) -> State {
        let phase = self.phase();
        let rests = !matches!(phase, Phase::Starting | Phase::Working | Phase::Waiting);
        fn of<T: Clone>(list: &[T], rests: bool) -> Vec<T> {
            if rests { list.to_vec() } else { Vec::new() }
        }
        State {
            phase,
            agent: self.kept.agent.clone(),
            mode: self.kept.mode.clone(),
            model: self.kept.model.clone(),
            modes: of(&self.choices.modes, rests),
            models: of(&self.choices.models, rests),
            commands: of(&self.choices.commands, rests),
            steers: self.abilities.is_some_and(|abilities| abilities.steers),
            directory: self.kept.directory.display().to_string(),
            branch: self.branch.clone(),
            provider_session_id: self.kept.resume.clone(),
            context: self.choices.context,
            cost_usd: self.kept.cost_usd,
            queue: self.waiting().cloned().collect(),
            access: self.rules.access.grants().cloned().collect(),
            key_epoch: self.key_epoch,
        }
    }

    fn wants(&self) -> Wants {
        let questions = self.kept.open.values().filter(|is_question| **is_question).count();
        let open = self.kept.open.len();
        let kind = if open > questions {
            AttentionKind::Permission
        } else if questions > 0 {
            AttentionKind::Question
        } else if self.kept.turn.is_none() && !self.kept.ended {
            self.seen_end.unwrap_or_default()
        } else {
            AttentionKind::None
        };
        let open = u8::try_from(open.min(99)).unwrap_or(99);
        let is_new = (kind, open) != (self.wants.kind, self.wants.open);
        Wants { kind, open, count: self.wants.count + u64::from(is_new) }
    }

    /// The prompts that the agent does not have yet.
    fn waiting(&self) -> impl Iterator<Item = &String> {
        let waiting = self.kept.queue.iter().map(|prompt| &prompt.local_id);
        waiting.filter(|local_id| self.in_flight.as_ref() != Some(*local_id))
    }

    /// The mode in which the agent works.
    fn mode(&self) -> &Mode {
        &self.kept.mode
    }
}

/// The `localId` of the host's message with this count.
pub(crate) fn local_id(n: u64) -> String {
    format!("h{n}")
}

/// The bytes of a signed message with this body: the body is JSON inside of JSON, and ids, key and signature are beside it.
fn signed_size(body: &str) -> usize {
    const BESIDE: usize = 400;
    serde_json::to_string(body).map_or(usize::MAX, |text| text.len() + BESIDE)
}
