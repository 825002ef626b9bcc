//! Signs the tasks of a plan, and seals those that are sessions, as a device of the account.

use ensemble_account::Account;
use ensemble_account::tasks::{ClearTask, SessionTask};
use ensemble_plan::Seal;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{SealedTask, Signed};

use crate::failure::{Failure, Result};
use crate::machines::Machines;

pub(crate) struct Sealing<'a> {
    pub(crate) me: &'a Account,
    pub(crate) machines: &'a Machines,
    /// The machine of the tasks that name none.
    pub(crate) machine: Option<MachineId>,
}

impl Seal for Sealing<'_> {
    type Error = Failure;

    fn machine(&self) -> Option<&MachineId> {
        self.machine.as_ref()
    }

    fn seal(&self, machine: &MachineId, task: &SessionTask) -> Result<SealedTask> {
        Ok(self.me.seal_task(task, machine, self.machines)?)
    }

    fn sign(&self, task: &ClearTask) -> Result<Option<Signed>> {
        Ok(Some(self.me.sign_task(task)?))
    }
}
