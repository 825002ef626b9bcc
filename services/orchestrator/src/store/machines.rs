//! What a deleted machine leaves behind.

use diesel::prelude::*;
use ensemble_store_kit::types::Uid;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::Store;
use super::ending::{EndingAttempt, Results, Runs, end_attempts, fail_dependents, let_go, pinned_tasks, transition};
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
                    let Some(run) = lock_run(tx, id)?.filter(|run| !run.status.is_terminal()) else {
                        return Ok((0, 0));
                    };
                    bury(tx, run, name.as_str(), until, max_losses)
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
    run: LockedRun,
    machine: &str,
    until: Timestamp,
    max_losses: i32,
) -> Result<(u32, u32), StoreError> {
    let id = run.id;
    let held = lock_leases(tx, &run, Which::Of(machine, until))?;
    let ends: Vec<EndingAttempt> = held
        .into_iter()
        .map(|(task, lease)| {
            let ending = Ending::MachineDeleted { pinned: task.pin.as_deref() == Some(machine) };
            EndingAttempt { run: id, task, lease, ending, results: Results::default() }
        })
        .collect();
    let ended = u32::try_from(ends.len()).unwrap_or(u32::MAX);
    let mut runs = Runs::from([(id, run)]);
    let mut failed = 0;
    if !ends.is_empty() {
        let finished = end_attempts(tx, &mut runs, ends, max_losses)?;
        failed = finished.iter().filter(|finished| finished.status == TaskStatus::Failed).count();
    }
    // After the ends: some of these may have waited for a task that has failed by it.
    let queued = pinned_tasks(tx, id, machine, until)?;
    if !queued.is_empty() {
        failed += fail_pinned(tx, &mut runs, &queued)?;
    }
    for run in runs.values_mut() {
        let_go(tx, run, machine)?;
        let event = run.counts.event();
        run.save(tx, event)?;
    }
    Ok((ended, u32::try_from(failed).unwrap_or(u32::MAX)))
}

/// Fails queued tasks of the one run that is locked.
fn fail_pinned(tx: &mut Conn, runs: &mut Runs, queued: &[(TaskId, bool)]) -> Result<usize, StoreError> {
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Failed)?;
    let error = machine_deleted();
    let roots: Vec<TaskId> = queued.iter().map(|(id, _)| *id).collect();
    for run in runs.values_mut() {
        let update: Sql<()> = sql(
            "UPDATE tasks SET status = {}, version = {}, finished_at = {}, not_before = NULL, error_code = {}, \
             error_message = {} WHERE id IN {} AND status = 'queued'",
            vec![
                status.as_str().into(),
                run.version.into(),
                run.now.into(),
                error.code.as_str().into(),
                error.message.as_str().into(),
                ids(roots.iter().copied()),
            ],
        );
        on!(tx, |c| update.execute(c))?;
        let count = i32::try_from(queued.len()).unwrap_or(i32::MAX);
        run.counts.queued -= count;
        run.counts.failed += count;
        run.counts.ready -= i32::try_from(queued.iter().filter(|(_, ready)| *ready).count()).unwrap_or(0);
    }
    fail_dependents(tx, runs, &roots)?;
    Ok(queued.len())
}
