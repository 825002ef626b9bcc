//! A session that is a task of a run: its prompt and its result.

use super::*;
use crate::kept::{TaskEnd, TaskTurn};

/// The prompt for an agent that had begun with the task before.
const RESUME: &str = "You were interrupted before you had finished the task. Look at what is done already, do not repeat it, and finish it.";

/// The progress of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// Its prompt waits, or the agent works on it.
    Runs,
    /// The agent works on it, and a person is to answer what it asks.
    Asks,
    Ended(TaskEnd),
}

impl Core {
    /// Has the agent do the prompt of a task. The same `prompt_id` again changes nothing.
    pub(crate) fn task(&mut self, prompt_id: String, text: String) {
        let before = self.kept.task.clone().filter(|task| task.prompt_id != prompt_id);
        if self.kept.task.is_some() && before.is_none() {
            return;
        }
        // What an earlier attempt has left in the queue is not done as well.
        for earlier in self.kept.queue.clone().into_iter().filter(|prompt| prompt.is_task && !prompt.is_given) {
            self.change(Change::Unqueue(earlier.key, earlier.local_id));
        }
        if before.as_ref().is_some_and(|task| self.is_task_turn(&task.prompt_id)) {
            self.interrupt();
        }
        let has_begun = before.as_ref().is_some_and(|task| task.has_begun);
        // It was done, and the report about it was lost. Or a person has ended it, and no server has it done all the same.
        let ended = before.and_then(|task| task.ended).filter(|end| end.is_good() || end.by_person);
        let is_done = ended.is_some();
        self.change(Change::Task(TaskTurn { prompt_id: prompt_id.clone(), has_begun, ended }));
        if is_done || self.kept.ended {
            return;
        }
        let text = if has_begun { RESUME.to_owned() } else { text };
        self.crashes = 0;
        self.last_failure = None;
        self.change(Change::Queue(Queued {
            user: self.rules.owner(),
            key: String::new(),
            account: String::new(),
            local_id: prompt_id,
            text,
            attachments: Vec::new(),
            is_approved: true,
            is_given: false,
            is_task: true,
        }));
    }

    /// The task is not to be done any more: its turn is interrupted.
    pub(crate) fn cancel_task(&mut self, prompt_id: &str) {
        let waiting = self.kept.queue.iter().find(|prompt| prompt.is_task && prompt.local_id == prompt_id);
        match waiting.map(|prompt| (prompt.key.clone(), prompt.is_given)) {
            Some((key, false)) => self.change(Change::Unqueue(key, prompt_id.to_owned())),
            Some((_, true)) => self.interrupt(),
            None if self.is_task_turn(prompt_id) => self.interrupt(),
            None => {}
        }
    }

    /// How far the task with this prompt is. `None`: another one has come after it.
    pub(crate) fn task_state(&self, prompt_id: &str) -> Option<TaskState> {
        let task = self.kept.task.as_ref().filter(|task| task.prompt_id == prompt_id)?;
        Some(match &task.ended {
            Some(end) => TaskState::Ended(end.clone()),
            None if !self.kept.open.is_empty() && self.is_task_turn(prompt_id) => TaskState::Asks,
            None => TaskState::Runs,
        })
    }

    fn is_task_turn(&self, prompt_id: &str) -> bool {
        self.kept.turn.as_ref().is_some_and(|turn| turn.prompt_id.as_deref() == Some(prompt_id))
    }

    /// The agent has the prompt of the task, so it may have begun with it.
    pub(super) fn task_is_given(&mut self) {
        if let Some(task) = self.kept.task.clone() {
            self.change(Change::Task(TaskTurn { has_begun: true, ..task }));
        }
    }

    /// A turn has ended.
    pub(super) fn end_task_turn(&mut self, said: &Turn) {
        let task = self.kept.task.clone().filter(|task| task.ended.is_none());
        let Some(task) = task.filter(|task| said.prompt_id.as_ref() == Some(&task.prompt_id)) else { return };
        let (error, retry_at) = self.last_failure.take().unzip();
        let end = TaskEnd {
            stop: said.stop_reason.clone(),
            error,
            retry_at: retry_at.flatten(),
            usage: said.usage,
            cost_usd: said.cost_usd,
            denials: self.denials,
            by_person: self.is_interrupted_by_person,
        };
        self.change(Change::Task(TaskTurn { ended: Some(end), ..task }));
    }

    /// A task whose prompt will not be done any more has ended.
    pub(super) fn settle_task(&mut self) {
        let Some(task) = self.kept.task.clone().filter(|task| task.ended.is_none()) else { return };
        let waiting =
            self.kept.queue.iter().find(|prompt| prompt.is_task && prompt.local_id == task.prompt_id).cloned();
        let is_hopeless = self.driver.is_none() && (self.kept.ended || self.crashes >= MOST_CRASHES);
        match waiting {
            Some(prompt) if is_hopeless => self.change(Change::Unqueue(prompt.key, prompt.local_id)),
            Some(_) => return,
            None if self.is_task_turn(&task.prompt_id) => return,
            None => {}
        }
        let (error, retry_at) = self.last_failure.take().unzip();
        let end = TaskEnd { error, retry_at: retry_at.flatten(), ..TaskEnd::default() };
        self.change(Change::Task(TaskTurn { ended: Some(end), ..task }));
    }
}
