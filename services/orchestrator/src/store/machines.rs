//! What a deleted machine leaves behind.

use diesel::prelude::*;
use ensemble_store_kit::types::Uid;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::Store;
use super::ending::{Results, end_attempt, fail_dependents, let_go, pinned_tasks, transition};
use super::held::{LockedRun, Which, lock_leases, lock_run};
use super::sql::{Sql, ids, sql, values};
use crate::domain::{Ending, TaskEvent, machine_deleted};

impl Store {
    /// Ends the leases of a machine that was deleted at `until` and fails the tasks that only it may do. Gives how many of
    /// each. What came later belongs to another machine of the same id.
    pub(crate) async fn bury_machine(
        &self,
        owner: UserId,
        machine: MachineId,
        until: Timestamp,
    ) -> Result<(u32, u32), StoreError> {
        let max_losses = self.terms.max_losses;
        let (of, name) = (owner, machine.clone());
        let runs: Vec<RunId> = self
            .db
            .write("forget a runner", move |tx| {
                let gone: Sql<()> =
                    sql("DELETE FROM runners WHERE owner_id = {} AND machine_id = {}", values![of, name.as_str()]);
                on!(tx, |c| gone.execute(c))?;
                let query: Sql<Uid> = sql(
                    "SELECT run_id FROM leases WHERE owner_id = {} AND machine_id = {} AND ended_at IS NULL \
                     UNION SELECT run_id FROM tasks WHERE owner_id = {} AND machine_id = {} AND finished_at IS NULL \
                     UNION SELECT id FROM runs WHERE owner_id = {} AND machine_id = {} AND finished_at IS NULL",
                    values![of, name.as_str(), of, name.as_str(), of, name.as_str()],
                );
                on!(tx, |c| query.load(c))
            })
            .await?;
        let (mut leases, mut tasks) = (0, 0);
        for id in runs {
            let name = machine.clone();
            let (ended, failed) = self
                .db
                .write("end a deleted machine's leases", move |tx| {
                    let Some(mut run) = lock_run(tx, id)?.filter(|run| !run.status.is_terminal()) else {
                        return Ok((0, 0));
                    };
                    bury(tx, &mut run, name.as_str(), until, max_losses)
                })
                .await?;
            leases += ended;
            tasks += failed;
        }
        Ok((leases, tasks))
    }
}

fn bury(
    tx: &mut Conn,
    run: &mut LockedRun,
    machine: &str,
    until: Timestamp,
    max_losses: i32,
) -> Result<(u32, u32), StoreError> {
    let held = lock_leases(tx, run, Which::Of(machine, until))?;
    let mut failed = 0;
    for (task, lease) in &held {
        let ending = Ending::MachineDeleted { pinned: task.pin.as_deref() == Some(machine) };
        let finished = end_attempt(tx, run, task, lease, ending, Results::default(), max_losses)?;
        failed += u32::from(finished.status == TaskStatus::Failed);
    }
    let queued = pinned_tasks(tx, run, machine, until)?;
    if !queued.is_empty() {
        let status = transition(tx, TaskStatus::Queued, TaskEvent::Failed)?;
        let error = machine_deleted();
        let roots: Vec<TaskId> = queued.iter().map(|(id, _)| *id).collect();
        let update: Sql<()> = sql(
            "UPDATE tasks SET status = {}, version = {}, finished_at = {}, not_before = NULL, error_code = {}, \
             error_message = {} WHERE id IN {}",
            vec![
                status.as_str().into(),
                run.version.into(),
                run.now.into(),
                error.code.into(),
                error.message.into(),
                ids(roots.iter().copied()),
            ],
        );
        on!(tx, |c| update.execute(c))?;
        let count = i32::try_from(queued.len()).unwrap_or(i32::MAX);
        run.counts.queued -= count;
        run.counts.failed += count;
        run.counts.ready -= i32::try_from(queued.iter().filter(|(_, ready)| *ready).count()).unwrap_or(0);
        failed += u32::try_from(count).unwrap_or(0);
        fail_dependents(tx, run, &roots)?;
    }
    let_go(tx, run, machine)?;
    let event = run.counts.event();
    run.save(tx, event)?;
    Ok((u32::try_from(held.len()).unwrap_or(u32::MAX), failed))
}
