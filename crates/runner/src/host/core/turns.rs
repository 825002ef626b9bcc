//! Turns: from a prompt to its end.

use super::*;

impl Core {
    pub(super) fn begin_turn(&mut self, cause: Cause) {
        let prompt_id = match cause {
            Cause::Prompt => self.in_flight.take().map(|(key, local_id)| {
                self.change(Change::Unqueue(key, local_id.clone()));
                local_id
            }),
            _ => None,
        };
        let turn = RunningTurn { id: unique().to_string(), cause, prompt_id };
        self.parts.clear();
        self.seen_end = None;
        self.say_turn(&turn, TurnState::Started, |_| {});
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
