//! Two accounts that use the same ids stay apart. Clients choose the ids of runs and tasks, so each row has its owner, and each statement
//! checks it.

use ensemble_store_kit::{DatabaseConfig, Db};
use ensemble_testkit::{Answer, Api, Backend, SOON, eventually, on_both_databases, sql};
use ensemble_types::ids::{RunId, TaskId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, RUNS, Runner, execute, number, path};

/// The tables of what belongs to a task: the table, an expression that changes when a row is changed or removed, and what the owner sees of
/// the rows that [`worked`] makes.
const TABLES: [(&str, &str, Option<&str>); 10] = [
    (
        "task_specs",
        "sum(length(prompt)) + 100 * sum(COALESCE(length(follow_up), 0)) + 1000 * sum(CASE WHEN stale THEN 1 ELSE 0 END)",
        Some("the prompt"),
    ),
    ("dependencies", "count(*)", None),
    ("output_chunks", "sum(length(data))", Some("the output")),
    ("task_permissions", "count(*) + sum(denial_count)", Some("the tool")),
    ("task_sessions", "count(*) + sum(CASE WHEN session_id IS NULL THEN 1 ELSE 0 END)", None),
    ("task_signatures", "sum(length(body))", Some("the signed text")),
    ("task_messages", "count(*)", None),
    ("task_diffs", "sum(size)", Some("the diff")),
    ("task_diff_ends", "sum(fence) + sum(stored_bytes)", None),
    ("ended_tasks", "count(*)", None),
];

fn signed(mut body: Value, text: &str) -> Value {
    body["signature"] = json!({ "key": "a key", "sig": "a signature" });
    body["signedBody"] = json!(text);
    body
}

/// Three tasks with these ids: one in a worktree, one that depends on it, and one that begins a live session.
fn request(run: RunId, [first, second, third]: [TaskId; 3], runner: &Runner) -> Value {
    let first = json!({ "id": first, "prompt": "the prompt", "provider": "claude", "taskKey": "a", "machineId": runner.id,
        "isolation": "worktree" });
    let second =
        json!({ "id": second, "prompt": "b", "provider": "claude", "dependsOn": ["a"], "machineId": runner.id });
    let third =
        json!({ "id": third, "sealed": "AQ", "session": "start", "provider": "claude", "machineId": runner.id });
    json!({ "id": run, "tasks": [signed(first, "the signed text"), second, third] })
}

fn new_request(runner: &Runner) -> Value {
    request(RunId::generate(), [TaskId::generate(), TaskId::generate(), TaskId::generate()], runner)
}

fn of_first(run: &Value, rest: &str) -> String {
    path(run, &format!("/tasks/{}/{rest}", run["tasks"][0]["id"].as_str().expect("a task")))
}

fn message(id: &str) -> Value {
    signed(json!({ "text": "and more", "messageId": id }), "the signed message")
}

/// Sends the results of an attempt of the first task.
async fn work(runner: &Runner, lease: &Value) {
    runner.output(lease, 0, "the output").await;
    runner.report(lease, "diff", json!({ "data": "the diff\n" })).await;
    let changes = json!({ "kept": true, "fileCount": 0, "added": 0, "removed": 0, "uncommitted": 0, "files": [] });
    let denials = json!({ "count": 1, "denials": [{ "tool": "the tool", "summary": "" }] });
    let done = json!({ "status": "completed", "outputSummary": "done", "providerSessionId": "s-1", "permission": "edit",
        "permissionDenials": denials, "changes": changes });
    runner.report(lease, "finish", done).await.expect(200);
}

/// A run that has ended, with rows in each of [`TABLES`] but the last. Its first task has a follow-up message, and an order about its
/// changes is open.
async fn worked(api: &Api, runner: &Runner) -> Value {
    let run = api.post(RUNS, &new_request(runner)).await.expect(201);
    let leases = runner.lease(8).await;
    assert_eq!(leases.len(), 2, "{leases:?}");
    work(runner, &leases[0]).await;
    let session = "0193a1b2-0000-7000-8000-000000000001";
    runner.report(&leases[1], "finish", json!({ "status": "completed", "sessionId": session })).await.expect(200);
    runner.complete(&runner.lease_one().await).await;
    api.post(&of_first(&run, "messages"), &message("m-1")).await.expect(200);
    work(runner, &runner.lease_one().await).await;
    api.post(&of_first(&run, "apply"), &signed(json!({}), "the signed order")).await.expect(200);
    api.get(&path(&run, "")).await.expect(200)
}

/// What the account sees of a run.
async fn seen(api: &Api, run: &Value) -> String {
    let mut read = api.get(&path(run, "")).await.json();
    for task in read["tasks"].as_array_mut().into_iter().flatten() {
        // Whether an order waits for a machine that is offline depends on the time.
        if let Some(changes) = task["changes"].as_object_mut() {
            changes.remove("waitingFor");
        }
    }
    let mut seen = read.to_string();
    for rest in ["output?follow=true", "diff"] {
        seen += &api.get(&of_first(run, rest)).await.text;
    }
    seen
}

/// Gives the first task of a run a row in the last of the tables. It stays until the run is changed.
async fn leave_unsettled(fixture: &Fixture, run: &Value) {
    let of_run = format!("run_id = (SELECT id FROM runs WHERE ref = {})", text(run));
    let rows = format!("SELECT run_id, id, owner_id FROM tasks WHERE {of_run} AND position = 0");
    execute(&fixture.url, &format!("INSERT INTO ended_tasks (run_id, task_id, owner_id) {rows}")).await;
}

/// The ref of a run, in SQL.
fn text(run: &Value) -> String {
    format!("'{}'", run["ref"].as_str().expect("a ref"))
}

/// An id in SQL.
fn id(on: Backend, id: impl ToString) -> String {
    match on {
        Backend::Postgres => format!("'{}'::uuid", id.to_string()),
        Backend::Sqlite => format!("x'{}'", id.to_string().replace('-', "")),
    }
}

/// What the rows of a table belong to: the column that names it, and the table that has the owner.
fn parent(table: &str) -> (&'static str, &'static str) {
    if table == "output_chunks" { ("lease_id", "leases") } else { ("task_id", "tasks") }
}

/// The answer says that the account has no such record.
fn nothing(answer: &Answer) {
    answer.problem(404, "NOT_FOUND");
}

on_both_databases! {
    async fn another_account_with_the_same_ids_sees_and_changes_nothing(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let run = worked(&fixture.api, &runner).await;
        let orders = json!({ "machineId": runner.id, "providers": [], "capacity": 0, "waitMs": 0 });
        let order = runner.api.post(LEASES, &orders).await.expect(200)["orders"][0].clone();
        assert_eq!(order["kind"], "apply");
        let open = fixture.api.post(&of_first(&run, "messages"), &message("m-2")).await;
        open.problem(409, "CONFLICT");
        let second = worked(&fixture.api, &fixture.runner()).await;

        let user = fixture.peers.new_user();
        let stranger = fixture.api.with_token(&fixture.peers.issuer().user(user));
        let machine = fixture.runner_of(user);
        let ids = [&run, &second].map(|run| (run["id"].clone(), run["tasks"].clone()));
        let before = seen(&fixture.api, &run).await;
        for (run_id, tasks) in &ids {
            let task = |at: usize| tasks[at]["id"].as_str().unwrap().parse().unwrap();
            let same = request(run_id.as_str().unwrap().parse().unwrap(), [task(0), task(1), task(2)], &machine);
            stranger.post(RUNS, &same).await.problem(409, "CONFLICT");
            let mut other_run = same.clone();
            other_run["id"] = json!(RunId::generate());
            stranger.post(RUNS, &other_run).await.problem(409, "CONFLICT");
        }
        // The stranger's own run, with the tasks of the other account.
        let own = stranger.post(RUNS, &new_request(&machine)).await.expect(201);
        let mixed = json!({ "id": own["id"], "tasks": run["tasks"] });
        for run in [&run, &mixed] {
            for rest in ["output", "output?follow=true", "diff"] {
                nothing(&stranger.get(&of_first(run, rest)).await);
            }
            nothing(&stranger.post(&of_first(run, "messages"), &message("m-1")).await);
            nothing(&stranger.post(&of_first(run, "messages"), &message("m-3")).await);
            for rest in ["apply", "discard"] {
                nothing(&stranger.post(&of_first(run, rest), &signed(json!({}), "the signed order")).await);
            }
        }
        nothing(&stranger.get(&path(&run, "")).await);
        nothing(&stranger.get(&path(&run, "/pend")).await);
        for rest in ["/cancel", "/retry"] {
            nothing(&stranger.post(&path(&run, rest), &json!({})).await);
        }
        nothing(&stranger.delete(&path(&run, "")).await);
        let result = format!("/v1/orchestrator/orders/{}/result", order["id"].as_str().unwrap());
        nothing(&machine.api.post(&result, &json!({ "outcome": "applied" })).await);
        assert_eq!(machine.lease(8).await.len(), 2, "its own");
        assert_eq!(seen(&fixture.api, &run).await, before);
        assert_eq!(stranger.get(RUNS).await.expect(200)["runs"].as_array().unwrap().len(), 1);
    }

    async fn a_lease_of_another_account_cannot_be_used(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let run = fixture.submit_run(new_request(&runner)).await;
        let lease = runner.lease(8).await.remove(0);
        runner.heartbeat(&lease).await.expect(200);
        runner.output(&lease, 0, "the output").await.expect(200);
        let machine = fixture.runner_of(fixture.peers.new_user());
        let session = json!({ "sessionId": "0193a1b2-0000-7000-8000-000000000002" });
        for (what, body) in [
            ("heartbeat", session),
            ("output", json!({ "offset": 10, "data": "more" })),
            ("diff", json!({ "data": "more" })),
            ("finish", json!({ "status": "completed" })),
        ] {
            nothing(&machine.report(&lease, what, body).await);
        }
        let output = fixture.api.get(&of_first(&run, "output")).await;
        assert_eq!((output.status, output.text.as_str()), (200, "the output"));
        assert_eq!(fixture.run(&run).await["tasks"][0]["status"], "running");
    }

    /// The service refuses a second row with the same id, so the test gives rows with the ids of this account to another one.
    async fn what_another_account_has_under_the_same_ids_is_neither_seen_nor_changed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let other = id(on, fixture.peers.new_user());
        for (table, changes, shown) in TABLES {
            let runner = fixture.runner();
            let run = worked(&fixture.api, &runner).await;
            leave_unsettled(&fixture, &run).await;
            let before = seen(&fixture.api, &run).await;
            assert!(shown.is_none_or(|text| before.contains(text)), "{table}: {before}");
            let (column, with_owner) = parent(table);
            let of_run = format!("run_id = (SELECT id FROM runs WHERE ref = {})", text(&run));
            let ids = format!("SELECT id FROM {with_owner} WHERE {of_run}");
            execute(&fixture.url, &format!("UPDATE {table} SET owner_id = {other} WHERE {column} IN ({ids})")).await;
            let of_other = format!("SELECT COALESCE({changes}, 0) FROM {table} WHERE owner_id = {other}");
            let rows = number(&fixture, &of_other).await;
            assert!(rows > 0, "{table}");

            let after = seen(&fixture.api, &run).await;
            assert!(shown.is_none_or(|text| !after.contains(text)), "{table}: {after}");
            // Everything that the owner of the run can do. Some of it fails, because a part of the run is missing.
            execute(&fixture.url, &format!("UPDATE runs SET unsettled = true WHERE ref = {}", text(&run))).await;
            execute(&fixture.url, "UPDATE task_changes SET state = 'kept', order_until = NULL").await;
            for id in ["m-1", "m-2"] {
                fixture.api.post(&of_first(&run, "messages"), &message(id)).await;
                for lease in runner.lease(8).await {
                    runner.heartbeat(&lease).await;
                    work(&runner, &lease).await;
                }
            }
            for rest in ["apply", "discard"] {
                fixture.api.post(&of_first(&run, rest), &signed(json!({}), "the signed order")).await;
            }
            fixture.api.post(&path(&run, "/retry"), &json!({})).await;
            fixture.api.post(&path(&run, "/cancel"), &json!({})).await;
            fixture.api.delete(&path(&run, "")).await.expect(200);
            eventually(SOON, async || number(&fixture, "SELECT count(*) FROM deleted_runs WHERE NOT purged").await == 0).await;
            assert_eq!(number(&fixture, "SELECT count(*) FROM tasks").await, 0, "{table}");
            assert_eq!(number(&fixture, &of_other).await, rows, "{table}");
            for (mine, ..) in TABLES {
                let left = format!("SELECT count(*) FROM {mine} WHERE owner_id <> {other}");
                assert_eq!(number(&fixture, &left).await, 0, "{mine}, with the rows of another account in {table}");
            }
        }
    }

    async fn rows_from_before_get_their_owners(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let other = fixture.peers.new_user();
        let others = fixture.api.with_token(&fixture.peers.issuer().user(other));
        let run = worked(&fixture.api, &fixture.runner()).await;
        let theirs = worked(&others, &fixture.runner_of(other)).await;
        let deleted = worked(&fixture.api, &fixture.runner()).await;
        for run in [&run, &theirs] {
            leave_unsettled(&fixture, run).await;
        }
        let before = [seen(&fixture.api, &run).await, seen(&others, &theirs).await];
        fixture.stop().await;
        let url = fixture.url.clone();
        let mut counts = Vec::new();
        for (table, ..) in TABLES {
            counts.push(number(&fixture, &format!("SELECT count(*) FROM {table}")).await);
        }
        assert!(!counts.contains(&0), "{counts:?}");
        let down = match on {
            Backend::Postgres => [
                include_str!("../../migrations/postgres/2026-12-18-000000_task_refs/down.sql"),
                include_str!("../../migrations/postgres/2026-12-17-000000_owners/down.sql"),
            ],
            Backend::Sqlite => [
                include_str!("../../migrations/sqlite/2026-12-18-000000_task_refs/down.sql"),
                include_str!("../../migrations/sqlite/2026-12-17-000000_owners/down.sql"),
            ],
        };
        for step in down {
            execute(&url, step).await;
        }
        // A run whose deletion did not record its owner, and rows that belong to nothing.
        let (ref_of, none) = (text(&deleted), id(on, "00000000-0000-0000-0000-000000000000"));
        let row = format!("SELECT id, {none}, ref, created_at FROM runs WHERE ref = {ref_of}");
        execute(&url, &format!("INSERT INTO deleted_runs (run_id, owner_id, ref, deleted_at) {row}")).await;
        execute(&url, &format!("DELETE FROM runs WHERE ref = {ref_of}")).await;
        let (unknown, data) = (id(on, TaskId::generate()), if on == Backend::Postgres { "''" } else { "x''" });
        execute(&url, &format!("INSERT INTO task_messages (task_id, message_id) VALUES ({unknown}, 'm')")).await;
        execute(&url, &format!("INSERT INTO output_chunks (lease_id, start_at, data) VALUES ({unknown}, 0, {data})")).await;

        sql::forget_migration(&url, "20261217000000").await;
        sql::forget_migration(&url, "20261218000000").await;
        Db::migrate(&DatabaseConfig::new(url.parse().unwrap()), ensemble_orchestrator::migrations()).await.unwrap();
        for ((table, ..), count) in TABLES.into_iter().zip(counts) {
            let (column, with_owner) = parent(table);
            let same = format!("{with_owner}.id = {table}.{column} AND {with_owner}.owner_id = {table}.owner_id");
            let right = format!("SELECT count(*) FROM {table} JOIN {with_owner} ON {same}");
            assert_eq!(number(&fixture, &right).await, count, "{table}");
            assert_eq!(number(&fixture, &format!("SELECT count(*) FROM {table}")).await, count, "{table}");
        }
        let mine = format!("SELECT count(*) FROM deleted_runs WHERE owner_id = {}", id(on, fixture.user));
        assert_eq!(number(&fixture, &mine).await, 1);
        if on == Backend::Postgres {
            // A replica of the previous release writes this.
            execute(&url, "INSERT INTO task_messages (task_id, message_id) SELECT id, 'old' FROM tasks").await;
            let wrong = "SELECT count(*) FROM task_messages JOIN tasks ON tasks.id = task_id AND tasks.owner_id <> task_messages.owner_id";
            assert_eq!(number(&fixture, wrong).await, 0);
            execute(&url, "DELETE FROM task_messages WHERE message_id = 'old'").await;
        }
        fixture.start(&[]).await;
        let others = others.at(&fixture.service().public_url());
        assert_eq!([seen(&fixture.api, &run).await, seen(&others, &theirs).await], before);
        // The rest of the deleted run is found and purged.
        eventually(SOON, async || number(&fixture, "SELECT count(*) FROM tasks").await == 6).await;
    }
}
