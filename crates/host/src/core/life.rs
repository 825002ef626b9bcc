//! The agent's process: when it starts, when it gets a prompt, and when it ends.

use ensemble_agent::{Attended, Checkpoint, Refused};
use ensemble_protocol::transcript::rules::Right;
use ensemble_protocol::transcript::words::ReceiptCode;

use super::commands::{Done, WITHHELD};
use super::*;
use crate::served::Left;

/// What precedes the first prompt after an end in the middle of a turn.
const CUT_OFF: &str =
    "(Your process was ended in the middle of your last turn and started again: look at what is done and continue.)";

/// Why a request is closed that is asked again.
const STARTED_AGAIN: &str = "the program on the machine starts again, and the agent asks again";

impl Core {
    /// A host process before this one has ended while something was under way. Its agent does not run any more.
    pub(crate) fn recover(&mut self) {
        self.close_open("agent restarted");
        if self.kept.left.is_some() {
            self.change(Change::Left(None));
        }
        if let Some(turn) = self.kept.turn.clone() {
            let text = "The program that runs the agent on its machine has ended in the middle of a turn. Send a prompt to continue.";
            self.fail(ErrorCode::Crashed, text);
            self.end_turn(turn, StopReason::Error);
            self.change(Change::CutOff(true));
        }
        self.refuse_given();
    }

    /// The turn has continued since the last host process ended. Its agent is connected to again.
    pub(crate) fn follow(&mut self, checkpoint: Checkpoint) {
        self.close_open(STARTED_AGAIN);
        self.change(Change::Left(None));
        self.start_with(Some(checkpoint));
    }

    /// Leaves the turn that runs to the agent's server, so that the next host process continues it. False: that cannot be done now.
    pub(crate) fn leave(&mut self, server: Uuid) -> bool {
        if self.kept.turn.is_none() || self.in_flight.is_some() || self.is_interrupting || self.kept.task.is_some() {
            return false;
        }
        let Some(checkpoint) = self.driver.as_ref().and_then(|driver| driver.checkpoint()) else { return false };
        self.close_open(STARTED_AGAIN);
        self.change(Change::Left(Some(Box::new(Left { server, checkpoint }))));
        true
    }

    /// The log was lost, and what is kept is what the server has shown. The agent does not run. `unanswered` are the key and `localId`
    /// of commands without a receipt.
    pub(crate) fn continue_after_loss(&mut self, why: &str, unanswered: Vec<(String, String)>) {
        self.close_open("the machine has lost its log of the session");
        let text = format!(
            "The machine could not use its log of this session any more ({why}), so it continues with what the server has. What the \
             agent did last may be missing above, and what had waited to be sent is lost. Prompts that waited are not done: send them \
             again. The mode is ask. Guests can only read until the owner shares the session with them again."
        );
        self.fail(ErrorCode::Unknown, &text);
        match self.kept.turn.clone() {
            Some(turn) => self.end_turn(turn, StopReason::Error),
            None => self.seen_end = Some(AttentionKind::Failed),
        }
        for (key, id) in unanswered {
            let why =
                "The machine has lost its log, so it does not know whether this was done. Send it again if it was not.";
            self.receipt(id, key, Done::Rejected(ReceiptCode::Stale, Some(why.to_owned())));
        }
    }

    /// An agent that has ended may have begun with what it had been given. It must not be done twice.
    fn refuse_given(&mut self) {
        for prompt in self.kept.queue.clone().into_iter().filter(|prompt| prompt.is_given) {
            let why = "The agent ended when it was about to begin with it. Look what it has done, and send it again.";
            self.refuse(prompt, ReceiptCode::Superseded, why.to_owned());
        }
    }

    /// Begins: the agent is started, so that people see what can be chosen.
    pub(crate) fn begin(&mut self) {
        self.show_servers();
        self.start();
        if self.kept.limit.is_some() && self.abilities.is_some_and(|abilities| !abilities.says_cost) {
            let text = "The agent does not say what it costs, so the limit of its cost holds nothing back.";
            self.fail(ErrorCode::Unknown, text);
        }
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
        self.still_running = Arc::default();
        let output = driver.exited(exit);
        self.take_output(Output { lines: Vec::new(), close: false, ..output });
        self.close_open("agent restarted");
        if let Some(turn) = self.kept.turn.clone() {
            self.end_turn(turn, StopReason::Error);
            self.change(Change::CutOff(true));
        }
        self.in_flight = None;
        self.is_interrupting = false;
        self.refuse_given();
        let was_wanted = std::mem::take(&mut self.is_stopping);
        self.crashes = if was_wanted { 0 } else { self.crashes.saturating_add(1) };
    }

    /// The agent could not be started.
    pub(crate) fn not_started(&mut self, why: &str) {
        self.driver = None;
        self.crashes = MOST_CRASHES;
        self.fail(ErrorCode::Crashed, &format!("The agent could not be started: {why}"));
        if let Some(turn) = self.kept.turn.clone() {
            self.end_turn(turn, StopReason::Error);
        }
    }

    /// Ends the agent until the next prompt. Nothing is done while a turn runs.
    pub(crate) fn park(&mut self) {
        if self.is_idle() && self.can_park() {
            self.stop_agent();
        }
    }

    /// The agent can resume the conversation after an end.
    pub(crate) fn can_park(&self) -> bool {
        self.abilities.is_some_and(|abilities| abilities.resumes)
    }

    /// No turn begins any more. The agent is ended as soon as it is idle. `leaves_turn`: a turn that runs is left to it.
    pub(crate) fn drain(&mut self, leaves_turn: bool) {
        self.is_draining = true;
        if leaves_turn && self.kept.task.is_none() {
            return;
        }
        // A turn that waits for an answer would wait for ever.
        let waits = !self.open.is_empty();
        self.close_open("the program on the machine is ending");
        if waits {
            self.interrupt();
        }
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

    /// An interrupt was ordered, and the turn still runs.
    pub(crate) fn is_interrupting(&self) -> bool {
        self.is_interrupting && self.has_turn()
    }

    /// The agent continues after an interrupt, so it is about to be ended.
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

    /// A person is to answer something.
    pub(crate) fn asks(&self) -> bool {
        !self.open.is_empty()
    }

    /// The agent runs, and has nothing to do and nothing to ask.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver.is_some() && !self.has_turn() && self.open.is_empty() && self.kept.queue.is_empty()
    }

    /// The agent was stopped or parked, and its process has not ended yet.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Starts the agent's process, unless it runs.
    pub(super) fn start(&mut self) {
        self.start_with(None);
    }

    fn start_with(&mut self, checkpoint: Option<Checkpoint>) {
        if self.driver.is_some() || self.is_draining {
            return;
        }
        let start = Start {
            directory: self.kept.directory.display().to_string(),
            session_id: self.kept.conversation.to_string(),
            mode: self.kept.mode.clone(),
            model: self.kept.model.clone(),
            resume: self.kept.resume.clone(),
            fork: self.kept.fork,
            cost_before: self.kept.cost_usd.unwrap_or_default(),
            as_root: self.as_root,
            checkpoint,
            mcp_servers: self.kept.mcp_servers.clone(),
            private: None,
            attended: Attended::People,
        };
        self.is_outdated = false;
        let mut driver = (self.driver_of)(self.kind, start.clone());
        self.abilities = Some(driver.abilities());
        self.effects.start = Some(start);
        let output = driver.begin();
        self.driver = Some(driver);
        self.take_output(output);
    }

    pub(super) fn stop_agent(&mut self) {
        self.is_stopping = true;
        self.order(ensemble_agent::Command::Stop);
    }

    /// Gives the agent an order that it may refuse.
    pub(super) fn order(&mut self, command: ensemble_agent::Command) -> bool {
        match self.driver.as_mut().map(|driver| driver.command(command)) {
            Some(Ok(output)) => {
                self.take_output(output);
                true
            }
            _ => false,
        }
    }

    /// Gives the agent the next prompt, when it can take one.
    pub(super) fn pump(&mut self) {
        if self.is_outdated {
            self.park();
        }
        if self.kept.ended || self.is_draining || self.is_stopping || self.has_turn() {
            return;
        }
        if self.driver.is_none() {
            if self.crashes < MOST_CRASHES && !self.kept.queue.is_empty() {
                self.start();
            }
            return;
        }
        while self.is_ready && self.in_flight.is_none() && self.kept.turn.is_none() {
            let Some(prompt) = self.kept.queue.front().cloned() else { return };
            if !self.is_judged(&prompt) || !self.may_cost_more() || !self.give(prompt) {
                return;
            }
        }
    }

    /// Gives the agent a prompt, if its signer may still have it done. False: the agent does not take one now.
    fn give(&mut self, prompt: Queued) -> bool {
        // What was right when it came may not be right any more.
        let judged = self.judged.as_ref().filter(|_| !prompt.is_task);
        let (right, is_listed, is_withheld) = match judged {
            Some(Judged { signer, list_is_withheld, .. }) => {
                (self.rules.right(signer), signer.role.is_some(), *list_is_withheld)
            }
            // The owner has signed the whole task.
            None => (Right::Linked, true, false),
        };
        let asks = matches!(self.kept.mode, Mode::Ask | Mode::Plan);
        match right {
            _ if is_withheld => {
                self.refuse(prompt, ReceiptCode::Busy, WITHHELD.to_owned());
                return true;
            }
            Right::Nothing if !is_listed => {
                let why = "The device that has sent it was removed before its turn came.".to_owned();
                self.refuse(prompt, ReceiptCode::UnknownKey, why);
                return true;
            }
            Right::Nothing => {
                let why = "The owner has taken the right to prompt away.".to_owned();
                self.refuse(prompt, ReceiptCode::NotAllowed, why);
                return true;
            }
            Right::Prompt if !asks && !prompt.is_approved => {
                self.change(Change::Unqueue(prompt.key.clone(), prompt.local_id.clone()));
                if !matches!(self.ask_owner(prompt.clone()), Done::Later) {
                    let why = "The owner has not decided about your other prompts yet.".to_owned();
                    self.refuse(prompt, ReceiptCode::Busy, why);
                }
                return true;
            }
            _ => {}
        }
        // A command of the agent begins with its slash, and a task says itself what happened.
        let tells = self.kept.cut_off && !prompt.is_task && !prompt.text.starts_with('/');
        let order = Prompt {
            id: unique().to_string(),
            text: if tells { format!("{CUT_OFF}\n\n{}", prompt.text) } else { prompt.text.clone() },
            attachments: prompt.attachments.clone(),
            steer: false,
        };
        let Some(driver) = &mut self.driver else { return false };
        match driver.command(ensemble_agent::Command::Prompt(order)) {
            Ok(output) => {
                if prompt.is_task {
                    self.task_is_given();
                }
                if tells || (self.kept.cut_off && prompt.is_task) {
                    self.change(Change::CutOff(false));
                }
                let name = (prompt.key, prompt.local_id);
                self.change(Change::Give(name.0.clone(), name.1.clone()));
                self.in_flight = Some(name);
                self.seen_end = None;
                self.take_output(output);
            }
            Err(refused @ (Refused::Unsupported(_) | Refused::NoSuchOption | Refused::Closed)) => {
                self.refuse(prompt, ReceiptCode::Unsupported, format!("The agent cannot do it: {refused}."));
            }
            // It is asked again when something has happened.
            Err(Refused::Busy | Refused::NotReady) => return false,
        }
        true
    }
}
