//! What a person is asked before a plan is submitted.

use std::collections::BTreeSet;

use ensemble_account::Account;
use ensemble_plan::Draft;
use ensemble_types::ids::MachineId;
use ensemble_types::runs::Permission;

use super::Options;
use crate::agreed::{self, Where, Work};
use crate::context::Context;
use crate::failure::Result;
use crate::machines::Machines;

/// What the plan itself calls machines: names, refs and ids.
pub(super) fn written(draft: &Draft) -> BTreeSet<MachineId> {
    draft.machine.iter().chain(draft.steps.iter().filter_map(|step| step.machine.as_ref())).cloned().collect()
}

impl Options {
    /// Asks about each machine and directory of the plan. An id that is `written` in it says which machine is meant. It does not say that
    /// an agent may do everything: the plan may be another person's.
    pub(super) fn agree(
        &self,
        (context, me): (&Context, &Account),
        draft: &Draft,
        written: &BTreeSet<MachineId>,
        (machine, machines): (Option<&MachineId>, &Machines),
    ) -> Result<()> {
        let work = draft.steps.iter().map(|step| {
            let on = step.machine.as_ref().or(machine);
            let is_bypass = step.permission == Some(Permission::Bypass);
            let is_typed = on.is_some() && on.map(MachineId::as_str) == self.machine.as_deref();
            let is_written = on.is_some_and(|id| written.contains(id));
            let is_said = self.yes || is_typed || (is_written && !is_bypass);
            Work { directory: &step.directory, on: Where::of(on, machines), is_bypass, is_said, is_quiet: false }
        });
        // A yes to everything in a directory is a yes to less.
        let (everything, less): (Vec<_>, Vec<_>) = work.partition(|work| work.is_bypass);
        everything.into_iter().chain(less).try_for_each(|work| agreed::agree(context, me, work))
    }
}
