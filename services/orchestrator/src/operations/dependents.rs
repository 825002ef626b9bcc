//! What the end of a task means for those that depend on it. In a chain or behind one task there can be 10,000 of them, so one
//! transaction notifies some, and the worker of unsettled runs notifies the others.
//!
//! Until it is notified, a task has an open dependency, so no runner gets it.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::TaskId;
use ensemble_types::runs::{TaskError, TaskStatus};

use super::changes::{count, transition};
use super::topics::run_unsettled;
use crate::domain::TaskEvent;
use crate::store::ended_tasks::{self, Dependent, Ended};
use crate::store::runs::LockedRun;
use crate::store::tasks;

/// Tasks whose dependents are looked for at once.
const GROUP: usize = 100;

/// What one transaction may do for dependents.
pub(super) struct Share {
    dependents: usize,
    /// Each task of a chain takes one.
    queries: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { dependents: 500, queries: 100 }
    }
}

/// Notifies the tasks that depend on those that have ended, as far as the share lasts. What is left is done later.
pub(super) fn tell(tx: &mut Conn, run: &mut LockedRun, ended: Vec<Ended>, share: &mut Share) -> Result<(), StoreError> {
    // Tasks that are still to be queued again are notified after that.
    let left = if run.requeue.is_some() { ended } else { tell_some(tx, run, ended, share)? };
    if !left.is_empty() {
        ended_tasks::keep(tx, run, &left)?;
        run.unsettled = true;
        tx.notify(run_unsettled());
    }
    Ok(())
}

/// Returns the tasks whose dependents are not all notified.
fn tell_some(
    tx: &mut Conn,
    run: &mut LockedRun,
    ended: Vec<Ended>,
    share: &mut Share,
) -> Result<Vec<Ended>, StoreError> {
    let (mut left, mut notices) = (ended, Notices::default());
    while share.dependents > 0 && share.queries > 0 {
        let group = take_group(&mut left);
        let Some(first) = group.first() else { break };
        let ids: Vec<TaskId> = group.iter().map(|ended| ended.id).collect();
        let limit = i64::try_from(share.dependents).unwrap_or(i64::MAX);
        let found = ended_tasks::dependents(tx, run.owner, &ids, first.notified_until, limit)?;
        for dependent in found.iter().filter(|dependent| dependent.is_queued()) {
            left.extend(notices.tell(dependent, first.has_completed));
        }
        if found.len() >= share.dependents {
            left.extend(found.last().into_iter().flat_map(|last| rest(&group, last)));
        }
        share.dependents = share.dependents.saturating_sub(found.len());
        share.queries -= 1;
    }
    notices.save(tx, run)?;
    Ok(left)
}

/// Takes tasks that have ended alike and whose dependents are all to be notified, or a single one.
fn take_group(left: &mut Vec<Ended>) -> Vec<Ended> {
    let Some(first) = left.pop() else { return Vec::new() };
    let mut group = vec![first];
    if first.notified_until.is_none() {
        let is_alike = |ended: &mut Ended| ended.notified_until.is_none() && ended.has_completed == first.has_completed;
        group.extend(left.extract_if(.., is_alike).take(GROUP - 1));
    }
    group
}

/// Those of a group that are not done when this was the last dependent that was found, in the order of the ids.
fn rest<'a>(group: &'a [Ended], last: &Dependent) -> impl Iterator<Item = Ended> + use<'a> {
    let (of, notified) = (last.of, last.id);
    group.iter().filter(move |ended| ended.id >= of).map(move |ended| {
        let notified_until = if ended.id == of { Some(notified) } else { ended.notified_until };
        Ended { notified_until, ..*ended }
    })
}

/// What queued tasks learn.
#[derive(Default)]
struct Notices {
    /// A task that they depend on did not complete.
    lost: BTreeSet<TaskId>,
    /// How many tasks that they depend on have completed, and how many had not.
    met: BTreeMap<TaskId, (i32, i32)>,
}

impl Notices {
    /// Returns the dependent when it ends with this, and others depend on it.
    fn tell(&mut self, dependent: &Dependent, has_completed: bool) -> Option<Ended> {
        if has_completed {
            self.met.entry(dependent.id).or_insert((0, dependent.open_deps)).0 += 1;
            return None;
        }
        let is_new = self.lost.insert(dependent.id);
        (is_new && dependent.dependents > 0).then_some(Ended {
            id: dependent.id,
            has_completed: false,
            notified_until: None,
        })
    }

    fn save(mut self, tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
        self.met.retain(|id, _| !self.lost.contains(id));
        if !self.lost.is_empty() {
            let status = transition(tx, TaskStatus::Queued, TaskEvent::DependencyFailed)?;
            let error = TaskError {
                code: "DEPENDENCY_FAILED".to_owned(),
                message: "A task that this one depends on did not complete.".to_owned(),
            };
            let lost: Vec<TaskId> = self.lost.into_iter().collect();
            tasks::fail_queued(tx, run, &lost, status, &error)?;
            run.counts.queued -= count(lost.len());
            run.counts.failed += count(lost.len());
        }
        // Tasks that change alike are written together, so that the number of statements does not grow with their number.
        let mut alike: BTreeMap<(i32, bool), Vec<TaskId>> = BTreeMap::new();
        for (id, (met, open)) in self.met {
            alike.entry((met, met == open)).or_default().push(id);
        }
        for ((met, is_ready), of) in alike {
            tasks::meet_dependencies(tx, run.owner, &of, met, is_ready.then_some(run.version))?;
            if is_ready {
                run.counts.ready += count(of.len());
            }
        }
        Ok(())
    }
}
