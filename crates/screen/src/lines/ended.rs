//! How a run or a task has ended: what went well, how long it took, what it cost, and why something failed.

use ensemble_types::line::short;
use ensemble_types::runs::{Refusal, Run, RunStatus, Task, TaskError, TaskStatus};
use ensemble_types::time::Timestamp;

use super::progress::why_not_begun;
use super::{Machines, cost, denials, when};

/// `Run 4k2m9xwq completed: 2 completed. 5 s, $0.12.`, and what to type when tasks can be retried.
pub fn summary(run: &Run) -> (String, Option<String>) {
    let (summary, tasks) = (&run.summary, run.tasks.as_deref().unwrap_or_default());
    let counts = [(summary.completed, "completed"), (summary.failed, "failed"), (summary.cancelled, "cancelled")];
    let counts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let more = time_and_cost(run.started_at.zip(run.finished_at), tasks);
    let may_retry = |task: &Task| task.status == TaskStatus::Failed && !is_refused(task) && !has_lost_machine(task);
    let retry = run.status == RunStatus::Failed && tasks.iter().any(may_retry);
    (
        format!("Run {} {}: {}.{more}", run.reference, run.status.as_str(), counts.join(", ")),
        retry.then(|| format!("`ensemble retry {}` retries the failed tasks.", run.reference)),
    )
}

/// The same of one task.
pub fn summary_of(run: &Run, task: &Task, called: &str) -> String {
    let more = time_and_cost(task.started_at.zip(task.finished_at), std::slice::from_ref(task));
    format!("Run {}, {called}: {}.{more}", run.reference, task.status.as_str())
}

fn time_and_cost(time: Option<(Timestamp, Timestamp)>, tasks: &[Task]) -> String {
    let time = time.map(|(from, to)| when::duration(to.since(from)));
    let more: Vec<_> = time.into_iter().chain(cost::sentence(&cost::total(tasks))).collect();
    if more.is_empty() { String::new() } else { format!(" {}.", more.join(", ")) }
}

/// Whether a task is pinned to a machine that does not exist any more.
fn has_lost_machine(task: &Task) -> bool {
    task.error.as_ref().is_some_and(|error| error.code == "MACHINE_DELETED")
}

/// Whether a task failed because its machine could not begin it.
fn is_refused(task: &Task) -> bool {
    let error = task.error.as_ref().filter(|_| task.status == TaskStatus::Failed);
    error.is_some_and(|error| task.refusals.iter().any(|refusal| says(refusal, error)))
}

fn says(refusal: &Refusal, error: &TaskError) -> bool {
    refusal.code == error.code && refusal.message == error.message
}

/// Says why a task failed, or was not begun.
pub fn failed(run: &Run, task: &Task, number: usize, tasks: &[Task], machines: &impl Machines) -> Vec<String> {
    match task.status {
        TaskStatus::DependencyFailed => {
            vec![format!("\n✗ {}: not begun, because {}", task.called(number), why_not_begun(task, tasks))]
        }
        TaskStatus::Failed => {
            let why =
                task.error.as_ref().map_or_else(String::new, |error| format!("{} ({})", error.message, error.code));
            let on = task.machine_id.as_ref().map_or(String::new(), |id| format!(" on {}", machines.called(id)));
            let why = machines.explain(&short(&why, 2_000));
            let mut lines = vec![format!("\n✗ {}{on}: {why}", task.called(number))];
            if is_refused(task) {
                // No agent began, so there is no output, and the answers of the other machines are shown separately.
                let is_new = |refusal: &Refusal| !task.error.as_ref().is_some_and(|error| says(refusal, error));
                let refusals = task.refusals.iter().filter(|refusal| is_new(refusal)).cloned().collect();
                lines.extend(denials::report_machines(&[Task { refusals, ..task.clone() }], machines));
                return lines;
            }
            lines.extend(denials::report_machines(std::slice::from_ref(task), machines));
            let which = task.task_key.clone().unwrap_or_else(|| (number + 1).to_string());
            lines.push(format!("  ensemble output {} {which}", run.reference));
            lines
        }
        _ => Vec::new(),
    }
}
