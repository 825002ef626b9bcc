//! Signs and seals what machines of the account are to do, so that the server in between can neither read nor change it.

use std::time::Duration;

use ensemble_protocol::seal::{self, BoxPublicKey, SealError, SignedAs, TaskOrder, sign_clear};
pub use ensemble_protocol::seal::{ClearTask, SessionTask, SignedBase, TaskAction};
use ensemble_types::devices::Role;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, Run, SealedTask, Signed, Task};
use ensemble_types::signatures::digest;
use serde::Serialize;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::machines::Machines;
use crate::notice::Notice;
use crate::runs::must_be_signed;

/// How long an order waits for its machine.
const ORDER_GOOD_FOR: Duration = Duration::from_secs(24 * 3_600);

/// What the owner wants of a task.
pub enum Wanted {
    /// A message to its agent.
    Message(String),
    /// What it has changed is applied, or discarded, as it was shown.
    Changes { action: TaskAction, seen: String, unseen: bool },
}

impl Account {
    /// Signs a task in the clear, for its machine or for any.
    pub fn sign_task(&self, task: &ClearTask) -> Result<Signed> {
        if task.permission == Some(Permission::Bypass) && !self.is_primary() {
            self.say(Notice::BypassOfLinked);
        }
        let body = json("task", task)?;
        sign_clear(SignedAs::Task, &body, task.machine_id.as_ref(), &self.key).map_err(closed("task"))
    }

    /// Seals what a session is to do for a machine that the account's list has.
    pub fn seal_task(&self, task: &SessionTask, machine: &MachineId, machines: &Machines) -> Result<SealedTask> {
        let own = self.own();
        if task.mode == Permission::Bypass && !self.is_primary() {
            return Err(Error::BypassOfLinked);
        }
        let mut devices = own.list.body().devices.iter();
        let listed = devices.find(|device| device.role == Role::Machine && device.machine_id.as_ref() == Some(machine));
        let listed = listed.ok_or_else(|| Error::MachineWithoutKey(machines.called(machine)))?;
        let to = BoxPublicKey::from_text(&listed.box_key).map_err(closed("task"))?;
        let sealed =
            seal::seal_task(&json("task", task)?, &to, (self.id, machine), &self.key).map_err(closed("task"))?;
        SealedTask::new(sealed).map_err(|_| Error::TaskTooLong)
    }

    /// Signs what the owner wants of a task that there is, for the machine that has its agent's session or its worktree.
    pub fn order(&self, run: &Run, task: &Task, wanted: Wanted) -> Result<Signed> {
        let task_digest = digest(&*must_be_signed(run, task)?.signed_body);
        let (action, text, seen, unseen) = match wanted {
            Wanted::Message(text) => (TaskAction::Message, Some(text), None, false),
            Wanted::Changes { action, seen, unseen } => (action, None, Some(seen), unseen),
        };
        let at = self.client.now();
        let order = TaskOrder {
            action,
            task_id: task.id,
            task_digest,
            text,
            seen,
            unseen,
            machine_id: task.machine_id.clone(),
            nonce: SessionTask::nonce(),
            at,
            expires: at.plus(ORDER_GOOD_FOR),
        };
        let body = json("order", &order)?;
        sign_clear(action.into(), &body, task.machine_id.as_ref(), &self.key).map_err(closed("order"))
    }
}

fn json(what: &str, value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Form(format!("The {what} {error}.")))
}

fn closed(what: &str) -> impl Fn(SealError) -> Error {
    move |error| Error::Seal(format!("The {what}"), error)
}
