//! Leases for runners: which tasks, in which order, how many.

use std::collections::{BTreeMap, HashMap, VecDeque};

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, MachineId, RunId, TaskId, UserId};
use ensemble_types::leases::Lease;
use ensemble_types::runs::{Provider, TaskStatus};
use ensemble_types::time::Timestamp;

use super::ending::transition;
use super::held::{LockedRun, RunRow, RunTypes, provider, run_columns};
use super::sql::{Sql, Value, ids, sql, two_sqls, values};
use super::{Store, Terms};
use crate::domain::{RunEvent, TaskEvent, Template, run_transition};

/// What a runner can take.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) providers: Vec<Provider>,
    pub(crate) capacity: u32,
}

/// What it got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    pub(crate) leases: Vec<Lease>,
    /// Leases whose prompt would be too large with the outputs in it.
    pub(crate) too_large: Vec<(LeaseId, i64)>,
}

impl Wanted {
    /// The three places of `provider IN ({}, {}, {})`.
    fn provider(&self, at: usize) -> &'static str {
        self.providers.get(at).map_or("", |provider| provider.as_str())
    }
}

/// A task that may be leased now to a machine, of the run `r`.
macro_rules! takeable {
    () => {
        "t.run_id = r.id AND t.status = 'queued' AND t.open_deps = 0 AND t.not_before IS NULL \
         AND t.provider IN ({}, {}, {}) AND (t.machine_id = {} OR (t.machine_id IS NULL \
         AND (r.spread OR r.machine_id IS NULL OR r.machine_id = {})))"
    };
}

impl Store {
    /// Leases tasks to a runner, at most as many as it wants.
    pub(crate) async fn grant(&self, wanted: Wanted) -> Result<Granted, StoreError> {
        let terms = self.terms;
        // Runners of an account that are woken together want the same runs: one after the other they see what is left,
        // side by side they would wait for each other's locks, with a connection each.
        let _turn = self.turns.of(wanted.owner).await?;
        // Most who ask find nothing; they need no transaction.
        let asked = wanted.clone();
        let candidates: Vec<RunId> = self.db.read("look for work", move |c| candidates(c, &asked)).await?;
        if candidates.is_empty() {
            return Ok(Granted::default());
        }
        self.db.write("grant leases", move |tx| grant(tx, &wanted, &candidates, &terms)).await
    }
}

/// Runs with something for this runner, those first that have waited longest for their turn.
fn candidates(c: &mut Conn, wanted: &Wanted) -> Result<Vec<RunId>, StoreError> {
    let machine = wanted.machine.as_str();
    // A question of its own for each run, not a join: a plan that was made while there were few tasks must not go through
    // those of all accounts later. And SQLite would rather walk through all the tasks of a run.
    macro_rules! query {
        ($index:literal) => {
            concat!(
                "SELECT r.id FROM runs r WHERE r.owner_id = {} AND r.ready > 0 AND r.running < r.max_concurrency \
                 AND r.status IN ('queued', 'running') \
                 AND (r.pinned OR r.spread OR r.machine_id IS NULL OR r.machine_id = {}) \
                 AND (SELECT 1 FROM tasks t",
                $index,
                " WHERE ",
                takeable!(),
                " LIMIT 1) = 1 ORDER BY r.served_at, r.id LIMIT {}"
            )
        };
    }
    let query: Sql<Uid> = two_sqls(
        query!(""),
        query!(" INDEXED BY tasks_ready"),
        values![
            wanted.owner,
            machine,
            wanted.provider(0),
            wanted.provider(1),
            wanted.provider(2),
            machine,
            machine,
            wanted.capacity
        ],
    );
    on!(c, |c| query.load(c))
}

fn grant(tx: &mut Conn, wanted: &Wanted, candidates: &[RunId], terms: &Terms) -> Result<Granted, StoreError> {
    let mut runs = lock_runs(tx, candidates)?;
    runs.retain(|run| {
        run_transition(run.status, RunEvent::Dispatched).is_some() && !run.is_cancelling() && slots(run) > 0
    });
    let mut found = find_tasks(tx, &runs, wanted)?;
    let chosen = choose(&mut runs, &mut found, wanted, candidates);
    if chosen.is_empty() {
        return Ok(Granted::default());
    }
    write_tasks(tx, &chosen, wanted)?;
    let leases = write_leases(tx, &chosen, wanted, terms)?;
    write_runs(tx, &runs, &chosen, wanted)?;
    for run in &runs {
        if chosen.iter().any(|(owner, _)| *owner == run.id) {
            run.tell(tx);
        }
    }
    fill_in(tx, leases)
}

fn slots(run: &LockedRun) -> i32 {
    (run.max_concurrency - run.counts.running).min(run.counts.ready)
}

/// In the order of their ids, as whoever else locks several.
fn lock_runs(tx: &mut Conn, wanted: &[RunId]) -> Result<Vec<LockedRun>, StoreError> {
    let query: Sql<RunTypes> = two_sqls(
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id IN {} ORDER BY r.id FOR UPDATE"),
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id IN {} ORDER BY r.id"),
        vec![Value::Now, ids(wanted.iter().copied())],
    );
    let rows: Vec<RunRow> = on!(tx, |c| query.load(c))?;
    let operation = tx.operation();
    rows.into_iter().map(|row| row.locked(operation)).collect()
}

/// A task that may be leased: its run, itself, and whether it may go anywhere.
type Found = (RunId, TaskId, bool);

/// The first tasks of each run that this runner may take, as many as may run.
fn find_tasks(tx: &mut Conn, runs: &[LockedRun], wanted: &Wanted) -> Result<Vec<Found>, StoreError> {
    let machine = wanted.machine.as_str();
    let given = |first: Value, last: Value| {
        vec![
            wanted.provider(0).into(),
            wanted.provider(1).into(),
            wanted.provider(2).into(),
            machine.into(),
            machine.into(),
            first,
            last,
        ]
    };
    on!(
        tx,
        Pg | c | {
            let text = concat!(
                "SELECT r.id, x.id, x.free FROM runs r CROSS JOIN LATERAL (SELECT t.id, t.machine_id IS NULL AS free, \
                 t.position FROM tasks t WHERE ",
                takeable!(),
                " ORDER BY t.position LIMIT LEAST({}, r.max_concurrency - r.running)) x WHERE r.id IN {} \
                 ORDER BY r.id, x.position"
            );
            let of = ids(runs.iter().map(|run| run.id));
            sql::<(Uid, Uid, Bool)>(text, given(wanted.capacity.into(), of)).load::<Found>(c)
        },
        Sqlite | c | {
            let text = concat!(
                "SELECT r.id, t.id, t.machine_id IS NULL FROM runs r, tasks t INDEXED BY tasks_ready WHERE ",
                takeable!(),
                " AND r.id = {} ORDER BY t.position LIMIT {}"
            );
            let mut all = Vec::new();
            let mut outcome = Ok(());
            for run in runs {
                let limit = slots(run).min(i32::try_from(wanted.capacity).unwrap_or(i32::MAX));
                match sql::<(Uid, Uid, Bool)>(text, given(run.id.into(), limit.into())).load::<Found>(c) {
                    Ok(found) => all.extend(found),
                    Err(error) => outcome = Err(error),
                }
            }
            outcome.map(|()| all)
        }
    )
}

/// One task of each run in turn, those runs first that have waited longest; the counts follow.
fn choose(runs: &mut [LockedRun], found: &mut [Found], wanted: &Wanted, turn: &[RunId]) -> Vec<(RunId, TaskId)> {
    let mut waiting: HashMap<RunId, VecDeque<(TaskId, bool)>> = HashMap::new();
    for (run, task, free) in found.iter() {
        waiting.entry(*run).or_default().push_back((*task, *free));
    }
    let mut chosen = Vec::new();
    let capacity = usize::try_from(wanted.capacity).unwrap_or(0);
    loop {
        let before = chosen.len();
        for id in turn {
            let Some(run) = runs.iter_mut().find(|run| run.id == *id).filter(|run| slots(run) > 0) else { continue };
            let Some((task, free)) = waiting.get_mut(id).and_then(VecDeque::pop_front) else {
                continue;
            };
            if chosen.len() >= capacity {
                return chosen;
            }
            chosen.push((*id, task));
            run.counts.ready -= 1;
            run.counts.queued -= 1;
            run.counts.running += 1;
            if free && !run.spread && run.machine.is_none() {
                run.machine = Some(wanted.machine.to_string());
            }
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

fn write_tasks(tx: &mut Conn, chosen: &[(RunId, TaskId)], wanted: &Wanted) -> Result<(), StoreError> {
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Leased)?;
    let update: Sql<()> = sql(
        "UPDATE tasks SET status = {}, attempt = attempt + 1, \
         version = (SELECT r.version + 1 FROM runs r WHERE r.id = tasks.run_id), \
         provider_session_id = CASE WHEN ran_on = {} THEN provider_session_id END, \
         ran_on = {}, error_code = NULL, error_message = NULL WHERE id IN {} AND status = 'queued'",
        vec![
            status.as_str().into(),
            wanted.machine.as_str().into(),
            wanted.machine.as_str().into(),
            ids(chosen.iter().map(|(_, task)| *task)),
        ],
    );
    on!(tx, |c| update.execute(c))?;
    Ok(())
}

/// Writes the runs, those together that change alike: rarely more than a few statements.
fn write_runs(
    tx: &mut Conn,
    runs: &[LockedRun],
    chosen: &[(RunId, TaskId)],
    wanted: &Wanted,
) -> Result<(), StoreError> {
    let mut alike: BTreeMap<(i64, bool), Vec<RunId>> = BTreeMap::new();
    for run in runs {
        let count = chosen.iter().filter(|(owner, _)| *owner == run.id).count();
        let ours = run.machine.as_deref() == Some(wanted.machine.as_str());
        if count > 0 {
            alike.entry((i64::try_from(count).unwrap_or(0), ours)).or_default().push(run.id);
        }
    }
    let now = runs.iter().map(|run| run.now).max();
    for ((count, ours), of) in alike {
        let update: Sql<()> = sql(
            "UPDATE runs SET status = 'running', queued = queued - {}, ready = ready - {}, running = running + {}, \
             version = version + 1, machine_id = COALESCE(machine_id, {}), served_at = {}, updated_at = {}, \
             started_at = COALESCE(started_at, {}) WHERE id IN {}",
            vec![
                count.into(),
                count.into(),
                count.into(),
                ours.then_some(wanted.machine.as_str()).into(),
                now.into(),
                now.into(),
                now.into(),
                ids(of),
            ],
        );
        on!(tx, |c| update.execute(c))?;
    }
    Ok(())
}

type LeaseTypes = (
    Uid,
    Integer,
    Moment,
    Uid,
    Uid,
    Text,
    Bool,
    BigInt,
    Nullable<Text>,
    (Text, Nullable<Text>, Nullable<Text>),
    Nullable<Text>,
);

#[derive(Queryable)]
struct LeaseRow {
    id: LeaseId,
    attempt: i32,
    expires_at: Timestamp,
    run: RunId,
    task: TaskId,
    provider: String,
    templated: bool,
    timeout_ms: i64,
    resume: Option<String>,
    spec: (String, Option<String>, Option<String>),
    traceparent: Option<String>,
}

/// Makes the leases and reads all that the runner has to know, in the order in which the tasks were chosen.
fn write_leases(
    tx: &mut Conn,
    chosen: &[(RunId, TaskId)],
    wanted: &Wanted,
    terms: &Terms,
) -> Result<Vec<LeaseRow>, StoreError> {
    let pairs: Vec<(LeaseId, TaskId)> = chosen.iter().map(|(_, task)| (LeaseId::generate(), *task)).collect();
    let rows: Vec<String> = pairs
        .iter()
        .map(|(lease, task)| {
            format!("{{\"lease\":\"{}\",\"task\":\"{}\"}}", lease.uuid().simple(), task.uuid().simple())
        })
        .collect();
    let rows = format!("[{}]", rows.join(","));
    macro_rules! insert {
        ($lease:literal, $from:literal) => {
            concat!(
                "INSERT INTO leases (id, run_id, task_id, owner_id, machine_id, attempt, granted_at, beaten_at, \
                 expires_at, timeout_at, due_at, cancel_requested, ended_at, end_reason, outcome, output_length, \
                 output_stored, output_cut) SELECT ",
                $lease,
                ", t.run_id, t.id, t.owner_id, {}, t.attempt, {}, NULL, {}, NULL, {}, FALSE, NULL, NULL, NULL, 0, 0, \
                 FALSE FROM ",
                $from
            )
        };
    }
    let insert: Sql<()> = two_sqls(
        insert!("x.lease", "json_to_recordset({}::json) AS x (lease uuid, task uuid) JOIN tasks t ON t.id = x.task"),
        insert!("unhex(x.value ->> 'lease')", "json_each({}) AS x JOIN tasks t ON t.id = unhex(x.value ->> 'task')"),
        values![wanted.machine.as_str(), Value::Now, terms.lease, terms.first_beat, rows],
    );
    on!(tx, |c| insert.execute(c))?;
    let query: Sql<LeaseTypes> = sql(
        "SELECT l.id, l.attempt, l.expires_at, l.run_id, l.task_id, t.provider, t.templated, t.timeout_ms, \
         t.provider_session_id, s.prompt, s.model, s.working_directory, r.traceparent FROM leases l \
         JOIN tasks t ON t.id = l.task_id JOIN task_specs s ON s.task_id = l.task_id JOIN runs r ON r.id = l.run_id \
         WHERE l.id IN {}",
        vec![ids(pairs.iter().map(|(lease, _)| *lease))],
    );
    let mut leases: Vec<LeaseRow> = on!(tx, |c| query.load(c))?;
    let place: HashMap<LeaseId, usize> = pairs.iter().enumerate().map(|(at, (lease, _))| (*lease, at)).collect();
    leases.sort_by_key(|lease| place.get(&lease.id).copied());
    Ok(leases)
}

/// Puts outputs into the prompts that want them.
fn fill_in(tx: &mut Conn, rows: Vec<LeaseRow>) -> Result<Granted, StoreError> {
    let templated: Vec<TaskId> = rows.iter().filter(|row| row.templated).map(|row| row.task).collect();
    let mut outputs: HashMap<(TaskId, String), String> = HashMap::new();
    if !templated.is_empty() {
        let query: Sql<(Uid, Text, Nullable<Text>)> = sql(
            "SELECT d.task_id, s.task_key, t.output_summary FROM dependencies d JOIN tasks t ON t.id = d.depends_on \
             JOIN task_specs s ON s.task_id = d.depends_on WHERE d.task_id IN {} AND s.task_key IS NOT NULL",
            vec![ids(templated)],
        );
        let found: Vec<(TaskId, String, Option<String>)> = on!(tx, |c| query.load(c))?;
        outputs = found.into_iter().map(|(task, key, output)| ((task, key), output.unwrap_or_default())).collect();
    }
    let mut granted = Granted::default();
    for row in rows {
        let (prompt, model, working_directory) = row.spec;
        let rendered = if row.templated {
            let output = |key: &str| outputs.get(&(row.task, key.to_owned())).map_or("", String::as_str);
            Template::parse(&prompt).render(output)
        } else {
            Some(prompt)
        };
        let fence = i64::from(row.attempt);
        let Some(prompt) = rendered else {
            granted.too_large.push((row.id, fence));
            continue;
        };
        granted.leases.push(Lease {
            id: row.id,
            fence,
            run_id: row.run,
            task_id: row.task,
            attempt: u32::try_from(row.attempt).unwrap_or(0),
            provider: provider(&row.provider, tx.operation())?,
            model: model.filter(|model| model != "default"),
            prompt,
            working_directory,
            timeout_ms: u64::try_from(row.timeout_ms).unwrap_or(0),
            resume: row.resume,
            traceparent: row.traceparent,
            expires_at: row.expires_at,
        });
    }
    Ok(granted)
}
