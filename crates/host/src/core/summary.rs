//! What the session is doing as a whole: its state for clients, and what it wants from people.

use super::*;

/// The looks that the host answers, and the newer controls that it knows.
const DOES: [&str; 4] = ["look.names", "look.file", "look.git", "take_back"];

impl Core {
    /// Says what has become different.
    pub(super) fn settle(&mut self) {
        self.pump();
        self.settle_task();
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

    pub(super) fn is_idle_but_queue(&self) -> bool {
        self.driver.is_some() && !self.has_turn() && self.open.is_empty()
    }

    pub(super) fn phase(&self) -> Phase {
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
    pub(super) fn state(&self) -> State {
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
            does: DOES.map(str::to_owned).to_vec(),
            directory: self.directory(),
            branch: self.branch.clone(),
            provider_session_id: self.kept.resume.clone().filter(|_| !self.kept.fork),
            context: self.choices.context,
            cost_usd: self.kept.cost_usd,
            still_running: self.still_running.to_vec(),
            queue: self.waiting().cloned().collect(),
            access: self.rules.access.grants().cloned().collect(),
            key_epoch: self.key_epoch,
        }
    }

    /// Where the agent works, as people see it and as their commands name it.
    pub(super) fn directory(&self) -> String {
        self.kept.directory.display().to_string()
    }

    pub(super) fn wants(&self) -> Wants {
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
    pub(super) fn waiting(&self) -> impl Iterator<Item = &String> {
        self.kept.queue.iter().filter(|prompt| !prompt.is_given).map(|prompt| &prompt.local_id)
    }

    /// The mode in which the agent works.
    pub(super) fn mode(&self) -> &Mode {
        &self.kept.mode
    }
}
