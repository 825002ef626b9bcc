//! Seals tasks for machines of the account, so that the server in between can neither read nor change them.

use std::time::Duration;

use ensemble_account::Account;
use ensemble_protocol::seal::{
    BoxPublicKey, ClearTask, SessionTask, SignedAs, TaskAction, TaskOrder, seal_task, sign_clear,
};
use ensemble_types::devices::Role;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, SealedTask, Signed, Task};
use ensemble_types::signatures::digest;

use crate::context::now;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::origin::NOT_SIGNED;
use crate::plan::Seal;
use crate::print;

/// Seals by the account's own list of devices.
pub(crate) struct Sealing<'a> {
    pub(crate) me: &'a Account,
    pub(crate) machines: &'a Machines,
    /// The machine of the tasks that name none.
    pub(crate) machine: Option<MachineId>,
}

/// What the owner wants of a task.
pub(crate) enum Wanted {
    /// Its agent is told this.
    Message(String),
    /// What it has changed is applied, or discarded, as it was shown.
    Changes { action: TaskAction, seen: String, unseen: bool },
}

/// Signs what the owner wants of a task that there is, for the machine that has its agent's session or its worktree.
pub(crate) fn sign_order(me: &Account, task: &Task, wanted: Wanted) -> Result<Signed> {
    let task_digest = match &task.signed {
        Some(signed) => digest(&*signed.signed_body),
        None => return Err(Failure::message(format!("The task is {NOT_SIGNED}, so nothing can be ordered about it."))),
    };
    let (action, text, seen, unseen) = match wanted {
        Wanted::Message(text) => (TaskAction::Message, Some(text), None, false),
        Wanted::Changes { action, seen, unseen } => (action, None, Some(seen), unseen),
    };
    let at = now();
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
        expires: at.plus(GOOD_FOR),
    };
    let body = serde_json::to_string(&order).map_err(|error| Failure::message(format!("The order {error}.")))?;
    let signed = sign_clear(action.into(), &body, task.machine_id.as_ref(), &me.key);
    signed.map_err(|error| Failure::Seal("The order".to_owned(), error))
}

/// An order waits so long for its machine.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3_600);

impl Sealing<'_> {
    fn is_primary(&self) -> bool {
        let own = self.me.own();
        own.list.device(&self.me.key.public_key()).is_some_and(|device| device.role == Role::Primary)
    }
}

impl Seal for Sealing<'_> {
    fn sign(&self, task: &ClearTask) -> Result<Option<Signed>> {
        if task.permission == Some(Permission::Bypass) && !self.is_primary() {
            print::note(
                "This device is a linked one. A machine that takes signed tasks only lets an agent work in bypass where a primary device \
                 has signed it, and will refuse this task.",
            );
        }
        let failed = |error| Failure::Seal("The task".to_owned(), error);
        let body = serde_json::to_string(task).map_err(|error| Failure::message(format!("The task {error}.")))?;
        sign_clear(SignedAs::Task, &body, task.machine_id.as_ref(), &self.me.key).map(Some).map_err(failed)
    }

    fn machine(&self) -> Option<&MachineId> {
        self.machine.as_ref()
    }

    fn seal(&self, machine: &MachineId, task: &SessionTask) -> Result<SealedTask> {
        let Self { me, machines, .. } = self;
        let own = me.own();
        let list = &own.list;
        if task.mode == Permission::Bypass && !self.is_primary() {
            return Err(Failure::message(
                "This device is a linked one, and only a primary one starts a session in bypass. Take another mode, or do it on a \
                 primary device.",
            ));
        }
        let mut devices = list.body().devices.iter();
        let listed = devices.find(|device| device.role == Role::Machine && device.machine_id.as_ref() == Some(machine));
        let listed = listed.ok_or_else(|| {
            Failure::message(format!(
                "{} has no key in your list of devices, so nothing can be sealed for it. Run `ensemble runner` there on a primary \
                 device, or `ensemble link` here and `ensemble runner link` there.",
                machines.called(machine)
            ))
        })?;
        let failed = |error| Failure::Seal("The task".to_owned(), error);
        let to = BoxPublicKey::from_text(&listed.box_key).map_err(failed)?;
        let body = serde_json::to_string(task).map_err(|error| Failure::message(format!("The task {error}.")))?;
        let sealed = seal_task(&body, &to, (me.id, machine), &me.key).map_err(failed)?;
        SealedTask::new(sealed).map_err(|_| {
            Failure::message(
                "What a session is to do is too long: with its directory and title, the prompt may have about 48 KB.",
            )
        })
    }
}
