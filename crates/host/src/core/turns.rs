//! Turns: from a prompt to its end.

use super::*;

impl Core {
    pub(super) fn begin_turn(&mut self, cause: Cause) {
        let begun = self.in_flight.take_if(|_| cause == Cause::Prompt);
        let of_task = begun.as_ref().and_then(|(key, local_id)| {
            let found = self.kept.queue.iter().find(|prompt| prompt.key == *key && prompt.local_id == *local_id);
            found.filter(|prompt| prompt.is_task).map(|prompt| prompt.text.clone())
        });
        let prompt_id = begun.map(|(key, local_id)| {
            self.change(Change::Unqueue(key, local_id.clone()));
            local_id
        });
        let cause = if of_task.is_some() { Cause::Task } else { cause };
        let turn = RunningTurn { id: unique().to_string(), cause, prompt_id };
        self.parts.clear();
        self.seen_end = None;
        (self.last_failure, self.denials, self.is_interrupted_by_person) = (None, 0, false);
        self.say_turn(&turn, TurnState::Started, |said| said.text = of_task);
        self.change(Change::Turn(Some(turn)));
    }

    pub(super) fn end_turn(&mut self, turn: RunningTurn, stop: StopReason) {
        self.finish_turn(turn, |said| said.stop_reason = Some(stop));
    }

    pub(super) fn finish_turn(&mut self, turn: RunningTurn, fill: impl FnOnce(&mut Turn)) {
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
        self.crashes = 0;
        self.say_turn(&turn, TurnState::Ended, fill);
        self.change(Change::Turn(None));
    }

    pub(super) fn say_turn(&mut self, turn: &RunningTurn, state: TurnState, fill: impl FnOnce(&mut Turn)) {
        let mut said = Turn {
            turn_id: turn.id.clone(),
            state,
            cause: turn.cause.clone(),
            prompt_id: turn.prompt_id.clone(),
            text: None,
            stop_reason: None,
            usage: None,
            cost_usd: None,
        };
        fill(&mut said);
        if let Some(stop) = &said.stop_reason {
            let is_bad = matches!(stop, StopReason::Error | StopReason::Limit);
            self.seen_end = Some(if is_bad { AttentionKind::Failed } else { AttentionKind::Finished });
            self.end_task_turn(&said);
        }
        self.say(Content::Turn(said));
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
}
