//! Applies the reports of runners about their attempts: that an attempt has started, and how it ended.
//!
//! Reports that wait at the same time are applied in one transaction. So the reports of a run with many runners do not wait
//! for its lock one by one, and many reports wait for the disk once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ensemble_store_kit::{BatchConfig, Batcher, Conn, Db, Quota, StoreError};
use ensemble_types::changes::LeaseWaitsFor;
use ensemble_types::ids::{LeaseId, RunId, SessionId, TaskId, UserId};
use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::{TaskError, TaskStatus};
use ensemble_types::time::Timestamp;

use super::attempts::{EndingAttempt, Finished, end_attempts};
use super::changes::{LockedRuns, save_run, transition};
use super::{costs, quota};
use crate::config::Limits;
use crate::domain::{AttemptEnd, LeaseCall, RunEvent, TaskEvent, hold_until};
use crate::error::Error;
use crate::store::leases::{LockedLease, StartedLease};
use crate::store::refusals::{self, NewRefusal};
use crate::store::runs::LockedRun;
use crate::store::tasks::{AttemptResults, LockedTask};
use crate::store::{deleted_machines, leases, permissions, runners, task_sessions, tasks};

const OPERATION: &str = "apply lease reports";
/// Reports that can wait. A runner reports again after a 503, so a full queue delays reports and loses none.
const QUEUE: usize = 4_096;
/// A task that was handed back this many times fails.
const MOST_REFUSALS: usize = 32;
/// Reports in one transaction.
const MAX_BATCH: usize = 64;

/// How an attempt ended, as its runner reports it.
#[derive(Clone, Debug)]
pub(crate) struct EndReport {
    pub(crate) status: FinishStatus,
    pub(crate) error: Option<TaskError>,
    /// With the status quota: when the provider can be used again.
    pub(crate) resume_at: Option<Timestamp>,
    pub(crate) results: AttemptResults,
}

/// What the runner of an attempt that has not ended says about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningReport {
    pub(crate) waiting_for: Option<LeaseWaitsFor>,
    /// The live session of its task.
    pub(crate) session: Option<SessionId>,
}

/// A report about an attempt.
#[derive(Clone, Debug)]
pub(super) enum LeaseReport {
    /// It is running, or waits for something. This can be the first report about it.
    Running(RunningReport),
    Ended(Box<EndReport>),
}

/// The response to a report.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseReply {
    Running(Renewed),
    Ended(Finished),
}

/// The response to a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    pub(crate) expires_at: Timestamp,
    pub(crate) cancel_requested: bool,
}

/// The queue of reports. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LeaseReports(Batcher<(LeaseCall, LeaseReport), LeaseReply, Error>);

impl LeaseReports {
    /// `timeout` is how long a runner waits for its reply.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start(db: &Db, limits: Limits, quota: Quota, timeout: Duration) -> std::io::Result<Self> {
        let config = BatchConfig { name: OPERATION, queue: QUEUE, max_batch: MAX_BATCH, timeout };
        Batcher::start(db, config, move |db, reports| apply_batch(db, reports, (&limits, &quota))).map(Self)
    }

    /// Sets the task of an attempt to running, if it is not.
    pub(super) async fn running(&self, call: LeaseCall, report: RunningReport) -> Result<Renewed, Error> {
        match self.0.submit((call, LeaseReport::Running(report))).await? {
            LeaseReply::Running(renewed) => Ok(renewed),
            LeaseReply::Ended(_) => Err(Error::LeaseLost),
        }
    }

    /// Ends an attempt. A repeated report gets the same reply.
    pub(super) async fn ended(&self, call: LeaseCall, report: EndReport) -> Result<Finished, Error> {
        match self.0.submit((call, LeaseReport::Ended(Box::new(report)))).await? {
            LeaseReply::Ended(finished) => Ok(finished),
            LeaseReply::Running(_) => Err(Error::LeaseLost),
        }
    }
}

type Replies = Vec<Result<LeaseReply, Error>>;

/// The limits of attempts, and the quota of accounts.
type Bounds<'a> = (&'a Limits, &'a Quota);

fn apply_batch(db: &Db, reports: Vec<(LeaseCall, LeaseReport)>, bounds: Bounds<'_>) -> Replies {
    match db.write_blocking(OPERATION, |tx| apply_reports(tx, &reports, bounds)) {
        Ok(replies) => replies,
        Err(error @ StoreError::Unavailable { .. }) => reports.iter().map(|_| Err(error.clone().into())).collect(),
        // One report that cannot be stored must not fail the others.
        Err(error) if reports.len() > 1 => {
            tracing::warn!(%error, "Applying lease reports one by one");
            let one = |report| apply_batch(db, vec![report], bounds);
            reports.into_iter().flat_map(one).collect()
        }
        Err(error) => vec![Err(error.into())],
    }
}

/// Applies reports in their order and stores the result. The outer error is the database's, the inner ones are replies.
fn apply_reports(
    tx: &mut Conn,
    reports: &[(LeaseCall, LeaseReport)],
    (limits, quota): Bounds<'_>,
) -> Result<Replies, StoreError> {
    let mut batch = ReportBatch::load(tx, reports, (limits, quota))?;
    let mut decisions = Vec::with_capacity(reports.len());
    for (call, report) in reports {
        decisions.push(batch.apply(tx, call, report)?);
    }
    let ReportBatch { mut runs, changed, ending, .. } = batch;
    let finished = end_attempts(tx, &mut runs, ending, limits.max_losses)?;
    for run in runs.values_mut().filter(|run| changed.contains(&run.id)) {
        save_run(tx, run, run.counts.event())?;
    }
    let reply = |decision: Result<Decision, Error>| match decision? {
        Decision::Running(renewed) => Ok(LeaseReply::Running(renewed)),
        Decision::Ends(at) => finished.get(at).map(|end| LeaseReply::Ended(*end)).ok_or(Error::LeaseLost),
        Decision::HasEnded(status) => Ok(LeaseReply::Ended(Finished { status, pause: None })),
    };
    Ok(decisions.into_iter().map(reply).collect())
}

/// What follows from a report.
enum Decision {
    Running(Renewed),
    /// The attempt ends. This is its position in [`ReportBatch::ending`].
    Ends(usize),
    /// An earlier report ended the attempt.
    HasEnded(TaskStatus),
}

/// The reports of one transaction while they are applied.
struct ReportBatch<'a> {
    limits: &'a Limits,
    quota: &'a Quota,
    runs: LockedRuns,
    attempts: HashMap<LeaseId, (RunId, LockedTask, LockedLease)>,
    /// The attempts that could be resumed if their machines had not been deleted.
    of_deleted_machines: HashSet<LeaseId>,
    /// The runs that have to be saved.
    changed: Vec<RunId>,
    ending: Vec<EndingAttempt>,
    /// The leases that a report of this transaction ended, with their positions in `ending`.
    ended: HashMap<LeaseId, usize>,
}

impl<'a> ReportBatch<'a> {
    fn load(
        tx: &mut Conn,
        reports: &[(LeaseCall, LeaseReport)],
        (limits, quota): Bounds<'a>,
    ) -> Result<Self, StoreError> {
        let mut ids: Vec<LeaseId> = reports.iter().map(|(call, _)| call.lease).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut runs = LockedRuns::new();
        let mut attempts = HashMap::new();
        for (run, task, lease) in leases::lock_all(tx, &ids)? {
            attempts.insert(lease.id, (run.id, task, lease));
            runs.entry(run.id).or_insert(run);
        }
        let of_deleted_machines = of_deleted_machines(tx, &runs, attempts.values())?;
        let (changed, ending, ended) = (Vec::new(), Vec::new(), HashMap::new());
        Ok(Self { limits, quota, runs, attempts, of_deleted_machines, changed, ending, ended })
    }

    /// The outer error is the database's, the inner one is the reply.
    fn apply(
        &mut self,
        tx: &mut Conn,
        call: &LeaseCall,
        report: &LeaseReport,
    ) -> Result<Result<Decision, Error>, StoreError> {
        if let Some(at) = self.ended.get(&call.lease) {
            return Ok(repeated(report, Decision::Ends(*at)));
        }
        let Some((run, task, lease)) = self.attempts.get_mut(&call.lease) else { return Ok(Err(Error::NotFound)) };
        let Some(run) = self.runs.get_mut(run) else { return Ok(Err(Error::NotFound)) };
        if run.owner != call.owner || lease.machine_id != call.machine.as_str() {
            return Ok(Err(Error::NotFound));
        }
        if i64::from(lease.attempt) != call.fence {
            return Ok(Err(Error::LeaseLost));
        }
        if let Some(outcome) = lease.outcome() {
            return Ok(repeated(report, Decision::HasEnded(outcome)));
        }
        if self.of_deleted_machines.contains(&call.lease) {
            return Ok(Err(Error::LeaseLost));
        }
        if let LeaseReport::Ended(report) = report
            && hold_until(run.now, report.resume_at).is_none()
        {
            return Ok(Err(Error::InvalidField("/resumeAt", "must be at most 7 days ahead")));
        }
        let Some(resumed) = resume(tx, run, task, lease)? else { return Ok(Err(Error::LeaseLost)) };
        match report {
            LeaseReport::Running(RunningReport { waiting_for, session }) => {
                let waited = lease.waits().map(|(what, _)| what);
                if *waiting_for == Some(LeaseWaitsFor::Input) && !task_sessions::may_ask(tx, run.owner, task.id)? {
                    return Ok(Err(Error::InvalidField("/waitingFor", "is input only for a task with session true")));
                }
                let is_new =
                    session.map_or(Ok(false), |session| task_sessions::begun(tx, run.owner, task.id, session))?;
                let started = resumed || task.status != TaskStatus::Running || waited != *waiting_for || is_new;
                if started {
                    self.changed.push(run.id);
                }
                let renewed = renew(tx, run, (task, started), lease, (self.limits, *waiting_for))?;
                Ok(Ok(Decision::Running(renewed)))
            }
            LeaseReport::Ended(report) => {
                let EndReport { status, error, resume_at, results } = &**report;
                if *status == FinishStatus::Refused && lease.has_output() {
                    return Ok(Err(Error::AgentStarted));
                }
                self.changed.push(run.id);
                tx.hold(self.quota.reserve_anyway(run.owner, results.text_bytes()));
                let end = match (*status, error) {
                    (FinishStatus::Refused, Some(error)) => hand_back(tx, run, task, lease, error)?,
                    (FinishStatus::Quota, _) => quota::hold(tx, run, task, lease, *resume_at)?,
                    _ => reported(tx, (*status, error.as_ref()), (run.owner, task.id), results)?,
                };
                let end = costs::spend(tx, run.owner, task, results, end)?;
                let (run, task, lease) = (run.id, task.clone(), lease.clone());
                self.ended.insert(lease.id, self.ending.len());
                self.ending.push(EndingAttempt { run, task, lease, end, results: results.clone() });
                Ok(Ok(Decision::Ends(self.ending.len() - 1)))
            }
        }
    }
}

/// A completed task fails when it was refused something and its owner wants it to.
fn reported(
    tx: &mut Conn,
    (status, error): (FinishStatus, Option<&TaskError>),
    (owner, task): (UserId, TaskId),
    results: &AttemptResults,
) -> Result<AttemptEnd, StoreError> {
    let denied = results.denials.as_ref().map_or(0, |denials| denials.count);
    if status == FinishStatus::Completed && denied > 0 && permissions::fails_on_denial(tx, owner, task)? {
        let error = TaskError {
            code: "PERMISSION_DENIED".to_owned(),
            message: format!("The agent was refused something {denied} times, because no one was there to allow it."),
        };
        return Ok(AttemptEnd::Reported(FinishStatus::Failed, Some(error)));
    }
    Ok(AttemptEnd::Reported(status, error.cloned()))
}

/// Records that the machine of a lease cannot run the task, and finds out whether another one may.
fn hand_back(
    tx: &mut Conn,
    run: &LockedRun,
    task: &LockedTask,
    lease: &LockedLease,
    error: &TaskError,
) -> Result<AttemptEnd, StoreError> {
    let (owner, machine) = (run.owner, lease.machine_id.as_str());
    let new = NewRefusal {
        task: task.id,
        fence: lease.attempt,
        run: run.id,
        owner,
        machine,
        provider: task.provider,
        error,
        at: run.now,
    };
    refusals::insert(tx, &new)?;
    let refusals = refusals::of_task(tx, owner, task.id)?;
    let has_refused = |machine: &str| refusals.iter().any(|(by, stands)| *stands && by == machine);
    let is_last = task.pin.is_some()
        || refusals.len() >= MOST_REFUSALS
        || runners::of_account(tx, owner)?
            .iter()
            .filter(|runner| runner.providers.contains(&task.provider))
            .all(|runner| has_refused(&runner.machine));
    Ok(AttemptEnd::Refused { error: error.clone(), is_last })
}

/// A report about an attempt that an earlier report ended.
fn repeated(report: &LeaseReport, decision: Decision) -> Result<Decision, Error> {
    match report {
        LeaseReport::Ended(_) => Ok(decision),
        LeaseReport::Running(_) => Err(Error::LeaseLost),
    }
}

/// Those of these attempts that a late report would resume, although their machines were deleted.
fn of_deleted_machines<'a>(
    tx: &mut Conn,
    runs: &LockedRuns,
    attempts: impl Iterator<Item = &'a (RunId, LockedTask, LockedLease)>,
) -> Result<HashSet<LeaseId>, StoreError> {
    let expired = |lease: &LockedLease| matches!(lease.end_reason.as_deref(), Some("expired" | "unbeaten"));
    let mut found = HashSet::new();
    for (run, task, lease) in attempts.filter(|(_, task, lease)| task.status == TaskStatus::Queued && expired(lease)) {
        let Some(run) = runs.get(run) else { continue };
        let deleted = deleted_machines::find(tx, run.owner, &lease.machine_id)?;
        if deleted.is_some_and(|deleted| deleted.held(lease.granted_at)) {
            tracing::debug!(task.id = %task.id, "Refused a late report of a deleted machine");
            found.insert(lease.id);
        }
    }
    Ok(found)
}

/// Whether the lease still counts. `None` when it does not: the task has ended, or a newer attempt has it. `true` when the
/// lease had expired and the task has no newer attempt: then the runner resumes its attempt.
fn resume(
    tx: &Conn,
    run: &mut LockedRun,
    task: &mut LockedTask,
    lease: &mut LockedLease,
) -> Result<Option<bool>, StoreError> {
    let is_newest = lease.attempt == task.attempt && !task.status.is_terminal();
    // A queued task of a run that is being cancelled is cancelled soon.
    let may_go_on = is_newest && task.status == TaskStatus::Queued && !run.is_cancelling();
    match lease.end_reason.as_deref() {
        None => return Ok(is_newest.then_some(false)),
        // The machine was not lost after all.
        Some("expired") if may_go_on => task.losses = (task.losses - 1).max(0),
        Some("unbeaten") if may_go_on => {}
        Some(_) => return Ok(None),
    }
    lease.end_reason = None;
    lease.timeout_at = None;
    lease.set_waits(None);
    task.status = transition(tx, task.status, TaskEvent::Started)?;
    run.counts.queued -= 1;
    run.counts.ready -= 1;
    run.counts.running += 1;
    run.apply_event(RunEvent::Dispatched, tx.operation())?;
    Ok(Some(true))
}

/// Extends a lease, and starts the attempt if it had not started.
fn renew(
    tx: &mut Conn,
    run: &LockedRun,
    (task, started): (&mut LockedTask, bool),
    lease: &mut LockedLease,
    (limits, waiting_for): (&Limits, Option<LeaseWaitsFor>),
) -> Result<Renewed, StoreError> {
    task.status = transition(tx, task.status, TaskEvent::Started)?;
    if started {
        tasks::start(tx, task, run.version, run.now)?;
    }
    // A runner that was asked to stop has until the end of its lease.
    if !lease.cancel_requested {
        lease.expires_at = run.now.plus(limits.lease);
    }
    let mut timeout_at = lease.timeout_at.unwrap_or_else(|| run.now.plus(task.timeout).plus(limits.timeout_grace));
    let since = lease.waits().map(|(_, since)| since);
    if let Some(since) = since.filter(|_| waiting_for.is_none()) {
        timeout_at = timeout_at.plus(run.now.since(since));
    }
    lease.timeout_at = Some(timeout_at);
    lease.set_waits(waiting_for.map(|what| (what, since.unwrap_or(run.now))));
    let beaten_at = *lease.beaten_at.get_or_insert(run.now);
    let started = StartedLease {
        id: lease.id,
        beaten_at,
        expires_at: lease.expires_at,
        timeout_at,
        cancel_received: lease.cancel_requested,
        waits: lease.waits(),
    };
    leases::start(tx, &started)?;
    Ok(Renewed { expires_at: lease.expires_at, cancel_requested: lease.cancel_requested })
}
