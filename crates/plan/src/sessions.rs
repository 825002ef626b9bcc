//! Tasks with `session: true`: what they do is sealed for their machine, and what is said stays in the session.

use std::time::Duration;

use ensemble_protocol::seal::SessionTask;
use ensemble_types::ids::{MachineId, RunId, SessionId, TaskId};
use ensemble_types::line::short;
use ensemble_types::runs::{CreateTask, Permission, Provider, SealedTask, Signed, TaskSession};
use ensemble_types::signatures::ClearTask;
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;

use super::Error;
use super::draft::Step;
use super::order::outputs;

/// Until then a machine begins with such a task.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Seals a task for a machine.
pub trait Seal {
    /// Why a task is not sealed or signed, or what is wrong with the plan.
    type Error: From<Error>;

    /// The machine of the tasks that name none.
    fn machine(&self) -> Option<&MachineId>;
    fn seal(&self, machine: &MachineId, task: &SessionTask) -> Result<SealedTask, Self::Error>;
    /// Signs a task in the clear. `None` where nothing is submitted.
    fn sign(&self, task: &ClearTask) -> Result<Option<Signed>, Self::Error>;
}

/// What is drawn once for a task that is submitted, however often it is signed under other ids: a machine does it once.
#[derive(Clone, Debug)]
pub(super) struct Once {
    pub(super) nonce: String,
    session: SessionId,
}

impl Once {
    pub(super) fn draw() -> Self {
        Self { nonce: SessionTask::nonce(), session: SessionId::generate() }
    }
}

/// What such a task cannot have.
pub(super) fn check(step: &Step) -> Result<(), String> {
    let refused = [
        ("allowedTools, which a session asks for", step.allowed_tools.is_some()),
        ("isolation", step.isolation.is_some()),
        ("base", step.base.is_some()),
    ];
    if let Some((field, _)) = refused.into_iter().find(|(_, is_there)| *is_there) {
        return Err(format!("a task with `session: true` cannot have {field}"));
    }
    if !outputs(&step.prompt).is_empty() {
        return Err("the prompt of a task with `session: true` is sealed, so the server cannot put outputs of other tasks into it".to_owned());
    }
    Ok(())
}

impl Step {
    /// The task as it is submitted.
    pub(super) fn sealed<S: Seal>(
        self,
        provider: Provider,
        by: &S,
        (run_id, task_id): (RunId, TaskId),
        at: Timestamp,
    ) -> Result<CreateTask, S::Error> {
        let machine = self.machine.as_ref().or(by.machine()).cloned().ok_or_else(|| {
            Error::Wrong(format!(
                "Task {} has `session: true`, so it is sealed for one machine. Name it with --machine, or with `machineId` in the plan.",
                self.called
            ))
        })?;
        let task = SessionTask {
            run_id,
            task_id,
            session: TaskSession::Turn,
            prompt: Some(self.prompt.replace("\\{{", "{{")),
            session_id: self.once.session,
            provider,
            working_directory: self.directory.into_string(),
            mode: self.permission.unwrap_or(Permission::Ask),
            model: self.model.map(Text::into_string),
            title: self.title.as_ref().map(|title| title.to_string()).or_else(|| Some(short(&self.prompt, 60))),
            max_cost_usd: self.max_cost_usd,
            nonce: self.once.nonce,
            at,
            expires: at.plus(GOOD_FOR),
        };
        let sealed = by.seal(&machine, &task)?;
        Ok(CreateTask {
            id: Some(task_id),
            sealed: Some(sealed),
            session: Some(TaskSession::Turn),
            depends_on: self.depends_on,
            task_key: self.key,
            title: self.title,
            machine_id: Some(machine),
            timeout_ms: self.timeout,
            retry: self.retry,
            fail_on_denial: self.fail_on_denial,
            ..CreateTask::of(provider)
        })
    }
}
