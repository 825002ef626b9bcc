//! Grants leases in one transaction: chooses tasks, stores their leases, and renders their prompts.

use std::collections::{BTreeMap, VecDeque};

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::leases::{Lease, Order};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::changes::{save_run, transition};
use crate::config::Limits;
use crate::domain::{ATTEMPT_BYTES, RunEvent, RunnerRequest, TaskEvent, Template, run_transition};
use crate::store::grants::{LeasedTask, ReadyTask, lease_tasks, leased_tasks, outputs_of_dependencies, ready_tasks};
use crate::store::leases::{self, NewLease};
use crate::store::runs::{self, LockedRun};
use crate::store::signatures::{self, About};
use crate::store::{deleted_machines, follow_ups, task_sessions};

/// A filled prompt has up to 1 MiB, and so have a signed one with its outputs; any other lease has about 64 KiB. So an answer has at most
/// 10 MiB, whatever the capacity.
const FILLED_PROMPTS: usize = 4;

/// The prompt of the next attempt when one was lost after its agent got the message.
const INTERRUPTED: &str = "You were interrupted before you had finished what you were asked last. Look at what is done already, \
                           do not repeat it, and finish it.";

/// The result of a grant.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    pub(super) leases: Vec<Lease>,
    pub(super) orders: Vec<Order>,
    /// Leases, with their fences, whose prompts would be too large with the outputs filled in.
    pub(super) too_large: Vec<(LeaseId, i64)>,
    /// The machine was deleted, so it gets nothing.
    pub(super) machine_is_gone: bool,
    /// Runners at other replicas got the tasks that were found.
    pub(super) is_late: bool,
}

/// Leases tasks of the candidates, which are ordered by how long they have waited.
pub(super) fn grant(
    tx: &mut Conn,
    request: &RunnerRequest,
    candidates: &[RunId],
    limits: &Limits,
) -> Result<Granted, StoreError> {
    let mut open: Vec<OpenRun> = Vec::new();
    for run in runs::lock_all(tx, candidates)? {
        let can_start = run_transition(run.status, RunEvent::Dispatched).is_some() && !run.is_cancelling();
        let capacity = i32::try_from(request.capacity).unwrap_or(i32::MAX);
        let free = run.max_concurrency - run.counts.running;
        let free = if free < capacity { free + task_sessions::asking(tx, run.id)? } else { free };
        let slots = free.min(capacity);
        if can_start && slots > 0 {
            let ready = ready_tasks(tx, &run, request, slots)?;
            open.push(OpenRun { run, ready: ready.into(), chosen: Vec::new() });
        }
    }
    open.sort_by_key(|open| candidates.iter().position(|id| *id == open.run.id));
    let order = choose(&mut open, request);
    let Some(now) = open.iter().map(|open| open.run.now).max().filter(|_| !order.is_empty()) else {
        // There were tasks. Either other runners got them, or the machine was deleted.
        let deleted = deleted_machines::find(tx, request.owner, request.machine.as_str())?;
        let machine_is_gone = deleted.is_some_and(|deleted| deleted.is_gone());
        return Ok(Granted { machine_is_gone, is_late: !machine_is_gone, ..Granted::default() });
    };
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Leased)?;
    for open in open.iter_mut().filter(|open| !open.chosen.is_empty()) {
        open.run.served_at = now;
        open.run.started_at.get_or_insert(now);
        let tasks: Vec<TaskId> = open.chosen.iter().map(|task| task.id).collect();
        lease_tasks(tx, &open.run, &tasks, status, &request.machine)?;
        save_run(tx, &mut open.run, RunEvent::Dispatched)?;
    }
    insert_leases(tx, request, &order, now, limits)?;
    let ids: Vec<LeaseId> = order.iter().map(|lease| lease.id).collect();
    let mut leased = leased_tasks(tx, &ids)?;
    leased.sort_by_key(|task| ids.iter().position(|id| *id == task.lease));
    render(tx, request.owner, leased)
}

/// A locked run with tasks that the runner can lease.
struct OpenRun {
    run: LockedRun,
    ready: VecDeque<ReadyTask>,
    chosen: Vec<ReadyTask>,
}

/// Takes one task of each run in turn, up to the runner's capacity and [`FILLED_PROMPTS`], and updates the counts. Returns
/// the leases in the order of the choice.
fn choose(open: &mut [OpenRun], request: &RunnerRequest) -> Vec<NewLease> {
    let (mut leases, mut filled) = (Vec::new(), 0);
    let capacity = usize::try_from(request.capacity).unwrap_or(usize::MAX);
    while leases.len() < capacity {
        let before = leases.len();
        for OpenRun { run, ready, chosen } in open.iter_mut() {
            if leases.len() >= capacity {
                break;
            }
            let fits = |task: &mut ReadyTask| !task.templated || filled < FILLED_PROMPTS;
            let Some(task) = ready.pop_front_if(fits) else { continue };
            filled += usize::from(task.templated);
            run.counts.ready -= 1;
            run.counts.queued -= 1;
            run.counts.running += 1;
            run.stored_bytes = run.stored_bytes.saturating_add(ATTEMPT_BYTES);
            if task.unpinned && !run.spread && run.machine.is_none() {
                run.machine = Some(request.machine.to_string());
            }
            let id = LeaseId::generate();
            leases.push(NewLease {
                id,
                run: run.id,
                task: task.id,
                attempt: task.attempt + 1,
                refusals: task.refusals,
            });
            chosen.push(task);
        }
        if leases.len() == before {
            break;
        }
    }
    leases
}

fn insert_leases(
    tx: &mut Conn,
    request: &RunnerRequest,
    new: &[NewLease],
    now: Timestamp,
    limits: &Limits,
) -> Result<(), StoreError> {
    let (expires_at, due_at) = (now.plus(limits.lease), now.plus(limits.first_heartbeat));
    leases::insert(tx, (request.owner, &request.machine), new, now, (expires_at, due_at))
}

/// Fills the outputs of dependencies into the prompts that use them.
fn render(tx: &mut Conn, owner: UserId, leased: Vec<LeasedTask>) -> Result<Granted, StoreError> {
    let mut granted = Granted::default();
    let ids: Vec<TaskId> = leased.iter().map(|task| task.task).collect();
    let mut signed = signatures::of_tasks(tx, owner, &ids, About::Task)?;
    let with_message: Vec<TaskId> =
        leased.iter().filter(|task| task.follow_up.is_some()).map(|task| task.task).collect();
    let mut messages = signatures::of_tasks(tx, owner, &with_message, About::Message)?;
    for task in leased {
        // Every other task has a prompt.
        if task.prompt.is_empty()
            && let Some((sealed, session)) = task_sessions::sealed(tx, owner, task.task)?
        {
            let lease = lease(task, String::new());
            granted.leases.push(Lease { sealed: Some(sealed), session: Some(session), ..lease });
            continue;
        }
        let (signed, message) = (signed.remove(&task.task), messages.remove(&task.task));
        let mut used = BTreeMap::new();
        let prompt = if let Some(text) = &task.follow_up {
            let has_it = follow_ups::was_delivered(tx, owner, task.task, task.follow_up_fence.unwrap_or(0))?;
            Some(if has_it { INTERRUPTED.to_owned() } else { text.clone() })
        } else if task.templated {
            let outputs = outputs_of_dependencies(tx, owner, task.task)?;
            let template = Template::parse(&task.prompt);
            let filled = template.render(|key| outputs.get(key).map_or("", |of| of.output.as_str()));
            match signed {
                // The machine fills in itself what was signed, so that it can tell the agent what is data.
                Some(_) => {
                    let has_place = |key: &String| template.keys().any(|used| used == key);
                    used = outputs.into_iter().filter(|(key, _)| has_place(key)).collect();
                    filled.map(|_| task.prompt.clone())
                }
                None => filled,
            }
        } else {
            Some(task.prompt.clone())
        };
        match prompt {
            Some(prompt) => {
                granted.leases.push(Lease { signed, signed_message: message, outputs: used, ..lease(task, prompt) });
            }
            None => granted.too_large.push((task.lease, i64::from(task.attempt))),
        }
    }
    Ok(granted)
}

fn lease(task: LeasedTask, prompt: String) -> Lease {
    Lease {
        id: task.lease,
        fence: i64::from(task.attempt),
        run_id: task.run,
        task_id: task.task,
        attempt: u32::try_from(task.attempt - task.refusals).unwrap_or(0),
        permission: task.permission(),
        allowed_tools: task.allowed_tools(),
        isolation: task.isolation(),
        base: task.base(),
        max_cost_usd: task.max_cost_usd(),
        resume_cost_usd: task.resume_cost_usd(),
        base_task: task.base_task,
        provider: task.provider,
        model: task.model.filter(|model| model != "default"),
        prompt,
        sealed: None,
        session: None,
        signed: None,
        signed_message: None,
        outputs: BTreeMap::new(),
        working_directory: task.working_directory,
        timeout_ms: u64::try_from(task.timeout_ms).unwrap_or(0),
        follow_up: task.follow_up.is_some(),
        resume: task.provider_session_id,
        traceparent: task.traceparent,
        expires_at: task.expires_at,
    }
}
