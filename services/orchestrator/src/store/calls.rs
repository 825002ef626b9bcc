//! What runners say of attempts that they hold: that they go on, and how they ended.
//!
//! A heartbeat of an attempt that is known to run is one statement. What changes a task goes through [`super::Queue`],
//! which does all that is waiting in one transaction ([`hear`]), with as many statements as for one call.

use std::collections::HashMap;
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::Bool;
use ensemble_store_kit::types::Moment;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, MachineId, TaskId, UserId};
use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::{TaskError, TaskStatus, Usage};
use ensemble_types::time::Timestamp;

use super::ending::{EndingAttempt, Finished, Results, Runs, end_attempts, transition};
use super::held::{HeldLease, HeldTask, Hold, LockedRun, save_runs, task_status};
use super::sql::{Sql, Value, list, sql, two_sqls, values};
use super::{Store, Terms};
use crate::domain::{Ending, RunEvent, TaskEvent};
use crate::error::Error;

/// Who speaks of which lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseCall {
    pub(crate) lease: LeaseId,
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) fence: i64,
}

/// What a runner hears on its heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) expires_at: Timestamp,
    pub(crate) cancel_requested: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) status: FinishStatus,
    pub(crate) error: Option<TaskError>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) output_summary: Option<String>,
    pub(crate) provider_session_id: Option<String>,
    pub(crate) usage: Option<Usage>,
}

/// What is said of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Word {
    /// It goes on; perhaps this is the first that is heard of it.
    Alive,
    Ended(Report),
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    Alive(Beat),
    Ended(Finished),
}

impl Store {
    /// Prolongs a lease.
    pub(crate) async fn beat(&self, call: LeaseCall) -> Result<Beat, Error> {
        let lease = self.terms.lease;
        let fast = call.clone();
        let renewed: Option<(Timestamp, bool)> = self
            .db
            .write("prolong a lease", move |tx| {
                macro_rules! renew {
                    ($least:literal) => {
                        concat!(
                            "UPDATE leases SET expires_at = CASE WHEN cancel_requested THEN expires_at ELSE {} END, \
                             due_at = CASE WHEN cancel_requested THEN due_at ELSE ",
                            $least,
                            "({}, timeout_at) END WHERE id = {} AND owner_id = {} AND machine_id = {} AND attempt = {} \
                             AND ended_at IS NULL AND timeout_at IS NOT NULL RETURNING expires_at, cancel_requested"
                        )
                    };
                }
                let renew: Sql<(Moment, Bool)> = two_sqls(
                    renew!("LEAST"),
                    renew!("MIN"),
                    values![lease, lease, fast.lease, fast.owner, fast.machine.as_str(), fast.fence],
                );
                on!(tx, |c| renew.get_result(c).optional())
            })
            .await?;
        match renewed {
            Some((expires_at, cancel_requested)) => Ok(Beat { expires_at, cancel_requested }),
            None => self.begin(call).await,
        }
    }

    /// Makes the task of an attempt running, if it is not known to be.
    pub(super) async fn begin(&self, call: LeaseCall) -> Result<Beat, Error> {
        match self.queue.put(call, Word::Alive).await? {
            Heard::Alive(beat) => Ok(beat),
            Heard::Ended(_) => Err(Error::LeaseLost),
        }
    }

    /// Ends an attempt as its runner says. The same report again gets the same answer.
    pub(crate) async fn finish(&self, call: LeaseCall, report: Report) -> Result<Finished, Error> {
        match self.queue.put(call, Word::Ended(report)).await? {
            Heard::Ended(finished) => Ok(finished),
            Heard::Alive(_) => Err(Error::LeaseLost),
        }
    }
}

/// Hears what runners say, one after the other, and writes what follows from all of it.
pub(super) fn hear(
    tx: &mut Conn,
    calls: &[(LeaseCall, Word)],
    terms: &Terms,
) -> Result<Vec<Result<Heard, Error>>, StoreError> {
    let mut leases: Vec<LeaseId> = calls.iter().map(|(call, _)| call.lease).collect();
    leases.sort_unstable();
    leases.dedup();
    let mut hearing = Hearing { terms: *terms, ..Hearing::default() };
    for Hold { run, task, lease } in Hold::lock(tx, &leases)? {
        hearing.held.insert(lease.id, (run.id, task, lease));
        hearing.runs.entry(run.id).or_insert(run);
    }
    let mut answers = Vec::with_capacity(calls.len());
    for (call, word) in calls {
        answers.push(hearing.hear(tx, call, word)?);
    }
    let Hearing { mut runs, begun, ends, .. } = hearing;
    write_begun(tx, &begun)?;
    let finished = end_attempts(tx, &mut runs, ends, terms.max_losses)?;
    let mut changed: Vec<&LockedRun> = Vec::new();
    let operation = tx.operation();
    for run in runs.values_mut().filter(|run| run.changed) {
        run.note(run.counts.event(), operation)?;
        changed.push(run);
    }
    if !changed.is_empty() {
        save_runs(tx, &changed)?;
    }
    let answer = |answer: Result<Answer, Error>| match answer? {
        Answer::Known(heard) => Ok(heard),
        Answer::Decided(at) => finished.get(at).map(|finished| Heard::Ended(*finished)).ok_or(Error::LeaseLost),
    };
    Ok(answers.into_iter().map(answer).collect())
}

/// An answer that is known, or the place of the end that it depends on.
enum Answer {
    Known(Heard),
    Decided(usize),
}

/// One transaction's worth of calls, while they are heard.
#[derive(Default)]
struct Hearing {
    terms: Terms,
    runs: Runs,
    held: HashMap<LeaseId, (ensemble_types::ids::RunId, HeldTask, HeldLease)>,
    begun: Vec<Begun>,
    ends: Vec<EndingAttempt>,
    /// The places of the ends of leases.
    ended: HashMap<LeaseId, usize>,
}

/// An attempt that was heard of, as it is written.
struct Begun {
    lease: LeaseId,
    beaten_at: Timestamp,
    expires_at: Timestamp,
    timeout_at: Timestamp,
    now: Timestamp,
    /// The task and the version that it changes with, when it was not running.
    task: Option<(TaskId, i64, i32)>,
}

impl Hearing {
    /// The outer error is the database's, the inner one the caller's.
    fn hear(&mut self, tx: &Conn, call: &LeaseCall, word: &Word) -> Result<Result<Answer, Error>, StoreError> {
        if let Some(place) = self.ended.get(&call.lease) {
            let again = matches!(word, Word::Ended(_));
            return Ok(if again { Ok(Answer::Decided(*place)) } else { Err(Error::LeaseLost) });
        }
        let Some((run, task, lease)) = self.held.get_mut(&call.lease) else { return Ok(Err(Error::NotFound)) };
        let Some(run) = self.runs.get_mut(run) else { return Ok(Err(Error::NotFound)) };
        if run.owner != call.owner || lease.machine != call.machine.as_str() {
            return Ok(Err(Error::NotFound));
        }
        if i64::from(lease.attempt) != call.fence {
            return Ok(Err(Error::LeaseLost));
        }
        if let Some(outcome) = &lease.outcome {
            let finished = Finished { status: task_status(outcome, tx.operation())?, pause: None };
            let repeated = matches!(word, Word::Ended(_));
            return Ok(if repeated { Ok(Answer::Known(Heard::Ended(finished))) } else { Err(Error::LeaseLost) });
        }
        let before = task.status;
        if !take_up(tx, run, task, lease)? {
            return Ok(Err(Error::LeaseLost));
        }
        match word {
            Word::Alive => {
                let begun = begin(tx, run, task, lease, before, &self.terms)?;
                let beat = Beat { expires_at: begun.expires_at, cancel_requested: lease.cancel_requested };
                self.begun.push(begun);
                Ok(Ok(Answer::Known(Heard::Alive(beat))))
            }
            Word::Ended(report) => {
                run.changed = true;
                let Report { status, error, exit_code, output_summary, provider_session_id, usage } = report.clone();
                let ending = Ending::Reported(status, error);
                let results = Results { exit_code, output_summary, provider_session_id, usage };
                let (task, lease) = (task.clone(), lease.clone());
                self.ended.insert(call.lease, self.ends.len());
                self.ends.push(EndingAttempt { run: run.id, task, lease, ending, results });
                Ok(Ok(Answer::Decided(self.ends.len() - 1)))
            }
        }
    }
}

/// Whether the lease may still speak for its task. One that ran out takes its task up again, unless somebody else was
/// given it or it has ended. What it changes here is written with what follows.
fn take_up(tx: &Conn, run: &mut LockedRun, task: &mut HeldTask, lease: &mut HeldLease) -> Result<bool, StoreError> {
    let newest = lease.attempt == task.attempt && !task.status.is_terminal();
    let reason = lease.end_reason.take();
    match reason.as_deref() {
        None => return Ok(newest),
        Some("expired" | "unbeaten") if newest && task.status == TaskStatus::Queued => {}
        Some(_) => {
            lease.end_reason = reason;
            return Ok(false);
        }
    }
    // It was no loss after all.
    task.losses = (task.losses - i32::from(reason.as_deref() == Some("expired"))).max(0);
    lease.timeout_at = None;
    task.status = transition(tx, task.status, TaskEvent::Begun)?;
    run.counts.queued -= 1;
    run.counts.ready -= 1;
    run.counts.running += 1;
    run.changed = true;
    run.note(RunEvent::Dispatched, tx.operation())?;
    Ok(true)
}

fn begin(
    tx: &Conn,
    run: &mut LockedRun,
    task: &mut HeldTask,
    lease: &mut HeldLease,
    before: TaskStatus,
    terms: &Terms,
) -> Result<Begun, StoreError> {
    let timeout = Duration::from_millis(u64::try_from(task.timeout_ms).unwrap_or(0));
    let timeout_at = lease.timeout_at.unwrap_or_else(|| run.now.plus(timeout).plus(terms.timeout_grace));
    if !lease.cancel_requested {
        lease.expires_at = run.now.plus(terms.lease);
    }
    task.status = transition(tx, task.status, TaskEvent::Begun)?;
    lease.timeout_at = Some(timeout_at);
    let beaten_at = *lease.beaten_at.get_or_insert(run.now);
    let changed = before != TaskStatus::Running;
    run.changed |= changed;
    Ok(Begun {
        lease: lease.id,
        beaten_at,
        expires_at: lease.expires_at,
        timeout_at,
        now: run.now,
        task: changed.then_some((task.id, run.version, task.losses)),
    })
}

fn write_begun(tx: &mut Conn, begun: &[Begun]) -> Result<(), StoreError> {
    if begun.is_empty() {
        return Ok(());
    }
    let (leases, tasks) = (begun_leases(begun), begun_tasks(begun));
    on!(
        tx,
        Pg | c
            | match (leases.execute(c), tasks) {
                (Ok(_), Some(tasks)) => tasks.execute(c),
                (done, _) => done,
            },
        Sqlite | c | write_each_begun(c, begun)
    )?;
    Ok(())
}

fn begun_leases(begun: &[Begun]) -> Sql<()> {
    let time = |of: fn(&Begun) -> Timestamp| list(begun.iter().map(|row| Some(of(row))));
    sql(
        "UPDATE leases SET ended_at = NULL, end_reason = NULL, beaten_at = x.beaten_at, expires_at = x.expires_at, \
         timeout_at = x.timeout_at, due_at = LEAST(x.expires_at, x.timeout_at) \
         FROM unnest({}, {}, {}, {}) AS x (id, beaten_at, expires_at, timeout_at) WHERE leases.id = x.id",
        vec![
            Value::IdList(begun.iter().map(|row| row.lease.into()).collect()),
            time(|row| row.beaten_at),
            time(|row| row.expires_at),
            time(|row| row.timeout_at),
        ],
    )
}

fn begun_tasks(begun: &[Begun]) -> Option<Sql<()>> {
    let tasks: Vec<_> = begun.iter().filter_map(|row| Some((row.task?, row.now))).collect();
    if tasks.is_empty() {
        return None;
    }
    Some(sql(
        "UPDATE tasks SET status = 'running', version = x.version, losses = x.losses, \
         started_at = COALESCE(tasks.started_at, x.now) \
         FROM unnest({}, {}, {}, {}) AS x (id, version, losses, now) WHERE tasks.id = x.id",
        vec![
            Value::IdList(tasks.iter().map(|((id, _, _), _)| (*id).into()).collect()),
            list(tasks.iter().map(|((_, version, _), _)| Some(*version))),
            list(tasks.iter().map(|((_, _, losses), _)| Some(i64::from(*losses)))),
            list(tasks.iter().map(|(_, now)| Some(*now))),
        ],
    ))
}

fn write_each_begun(c: &mut SqliteConnection, begun: &[Begun]) -> QueryResult<usize> {
    for row in begun {
        let lease: Sql<()> = sql(
            "UPDATE leases SET ended_at = NULL, end_reason = NULL, beaten_at = {}, expires_at = {}, timeout_at = {}, \
             due_at = {} WHERE id = {}",
            values![row.beaten_at, row.expires_at, row.timeout_at, row.expires_at.min(row.timeout_at), row.lease],
        );
        lease.execute(c)?;
        let Some((task, version, losses)) = row.task else { continue };
        let task: Sql<()> = sql(
            "UPDATE tasks SET status = 'running', version = {}, losses = {}, started_at = COALESCE(started_at, {}) \
             WHERE id = {}",
            values![version, losses, row.now, task],
        );
        task.execute(c)?;
    }
    Ok(begun.len())
}
