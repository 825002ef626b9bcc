//! How runs are drawn at several widths.

use ensemble_types::runs::TaskError;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::lines::tests::{Desk, task};

fn queued(key: &str, waiting_for: WaitingFor, reason: &str) -> Task {
    Task {
        status: TaskStatus::Queued,
        attempt: 0,
        waiting_for: Some(waiting_for),
        waiting_reason: Some(reason.to_owned()),
        started_at: None,
        finished_at: None,
        ..task(key)
    }
}

fn drawn(tasks: &[Task], columns: usize, rows: usize) -> Vec<String> {
    let place =
        Place { size: || Some((80, 24)), is_coloured: false, now: || Timestamp::from_unix_seconds(1_800_000_000) };
    let progress = Progress::new(tasks, Desk, place);
    progress.lines(columns, rows).iter().map(|line| line.render(Some(columns), false)).collect()
}

#[test]
fn each_task_has_a_line_that_keeps_its_state_at_every_width() {
    let mut done = task("a long name of a task");
    done.machine_id = Some("m-1".parse().unwrap());
    done.usage = Some(Usage { input_tokens: Some(1_500), output_tokens: Some(20), cost_usd: Some(0.025) });
    let mut broke = task("c");
    broke.status = TaskStatus::Failed;
    broke.error = Some(TaskError { code: "X".to_owned(), message: "no such model\nand more".to_owned() });
    let mut after = task("d");
    after.status = TaskStatus::DependencyFailed;
    after.depends_on = vec![done.id, broke.id];
    let tasks = [done, broke, after];
    for columns in [34, 40, 60, 120] {
        let lines = drawn(&tasks, columns, 20);
        assert!(lines.iter().all(|line| line.width() <= columns), "{lines:?}");
        for (line, state) in lines.iter().zip(["completed", "failed", "dependency_failed"]) {
            assert!(line.contains(state), "{columns}: {lines:?}");
        }
    }
    let wide = drawn(&tasks, 120, 20);
    for part in ["✓ a long name of a task", "5 s", "desk (m1000000)", "$0.0250", "codex"] {
        assert!(wide[0].contains(part), "{wide:?}");
    }
    assert!(wide[1].ends_with("no such model…"), "{wide:?}");
    assert!(wide[2].ends_with("it waited for c, which failed"), "{wide:?}");
    assert_eq!(wide[3], "1 of 3 tasks completed · $0.0250, tokens: 1.5k in, 20 out");
    assert!(drawn(&tasks, 40, 20)[0].contains("5 s"), "{:?}", drawn(&tasks, 40, 20));
}

#[test]
fn a_run_in_which_nothing_runs_says_why_with_names() {
    let reason = "It is pinned to the machine m-1, which is full: 4 of 4 attempts.";
    let tasks =
        [queued("a", WaitingFor::Machine, reason), queued("b", WaitingFor::Dependencies, "It depends on 1 task.")];
    let lines = drawn(&tasks, 40, 20);
    assert_eq!(lines[2..4], ["a waits: It is pinned to the machine", "desk (m1000000), which is full: 4 of 4"]);
    let mut busy = tasks.to_vec();
    busy[0].status = TaskStatus::Running;
    assert!(!drawn(&busy, 120, 20).iter().any(|line| line.contains("waits:")));
}

#[test]
fn more_tasks_than_rows_are_counted() {
    let mut tasks: Vec<_> =
        (0..300).map(|number| queued(&format!("t{number}"), WaitingFor::Dependencies, "x")).collect();
    tasks[7].status = TaskStatus::Running;
    tasks[8].status = TaskStatus::DependencyFailed;
    let lines = drawn(&tasks, 120, 5);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("t7") && lines[0].contains("running"), "{lines:?}");
    assert_eq!(lines[1], "300 tasks: 0 completed, 1 running, 298 queued, 1 failed, 0 cancelled");
}

#[test]
fn a_failure_is_named_before_what_it_caused() {
    let mut broke = task("broke");
    broke.status = TaskStatus::Failed;
    let mut between = task("between");
    between.status = TaskStatus::DependencyFailed;
    let mut last = task("last");
    last.depends_on = vec![between.id, broke.id];
    assert_eq!(why_not_begun(&last, &[between.clone(), broke]), "it waited for broke, which failed");
    assert_eq!(why_not_begun(&last, &[between]), "it waited for between, which could not begin");
}

#[test]
fn a_task_that_waits_for_others_names_them() {
    let mut first: Vec<_> = ["one", "two", "three", "four", "five"].map(task).to_vec();
    first.iter_mut().for_each(|task| task.status = TaskStatus::Running);
    first[0].status = TaskStatus::Completed;
    let mut last = queued("last", WaitingFor::Dependencies, "It depends on 4 tasks that have not completed.");
    last.depends_on = first.iter().map(|task| task.id).collect();
    first.push(last);
    let lines = drawn(&first, 120, 20);
    assert!(lines[5].ends_with("after two, three, four and 1 more"), "{lines:?}");
}
