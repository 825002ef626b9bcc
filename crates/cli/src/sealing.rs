//! Seals tasks for machines of the account, so that the server in between can neither read nor change them.

use ensemble_client::seal::{BoxPublicKey, SessionTask, seal_task};
use ensemble_types::devices::Role;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, SealedTask};

use crate::context::Me;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::plan::Seal;

/// Seals by the account's own list of devices.
pub(crate) struct Sealing<'a> {
    pub(crate) me: &'a Me,
    pub(crate) machines: &'a Machines,
    /// The machine of the tasks that name none.
    pub(crate) machine: Option<MachineId>,
}

impl Seal for Sealing<'_> {
    fn machine(&self) -> Option<&MachineId> {
        self.machine.as_ref()
    }

    fn seal(&self, machine: &MachineId, task: &SessionTask) -> Result<SealedTask> {
        let Self { me, machines, .. } = self;
        let list = &me.own.list;
        let is_primary = list.device(&me.key.public_key()).is_some_and(|device| device.role == Role::Primary);
        if task.mode == Permission::Bypass && !is_primary {
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
