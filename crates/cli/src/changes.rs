//! What tasks changed: printed, and what commands share that do something with it.

mod orders;

use std::path::Path;
use std::process::ExitCode;

use ensemble_plan::Draft;
use ensemble_screen::lines::changes::{
    self as lines, SHOWN_FILES, counted, headline, hidden, next_steps, worth_saying,
};
pub(crate) use ensemble_screen::lines::changes::{files_word, why_failed, with_files};
use ensemble_types::ids::MachineId;
use ensemble_types::runs::{ChangesState, Isolation, Run, Task, TaskChanges};

pub(crate) use self::orders::order;
use crate::commands::DONE;
use crate::context::{Context, now};
use crate::environment::environment;
use crate::failure::Result;
use crate::machines::Machines;
use crate::named::find;
use crate::print;
use crate::watching::WAITS_FOR_MACHINE;
use crate::when;

/// The summary after a run: the files of each task with their counts, and what to type next. `is_shown`: the whole diff was printed before.
pub(crate) fn report(context: &Context, run: &Run, is_shown: bool) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    for (number, task, changes) in worth_saying(tasks) {
        print::line(format!("\n{}", headline(run, (number, task), changes, &print::home())))?;
        show_files(context, task, changes, SHOWN_FILES)?;
        notes(changes)?;
    }
    let steps = next_steps(run, is_shown);
    if steps.is_empty() { Ok(()) } else { print::line(steps.join("\n")) }
}

/// What the machine had to say about the changes.
pub(crate) fn notes(changes: &TaskChanges) -> Result<()> {
    print::lines(lines::notes(changes))
}

/// The first files with their counts.
pub(crate) fn files(changes: &TaskChanges) -> Result<()> {
    lines::files(changes, SHOWN_FILES).iter().try_for_each(print::styled)
}

/// Prints at most `most` files of a task. An order about it can name the list only when all of it was printed.
pub(crate) fn show_files(context: &Context, task: &Task, changes: &TaskChanges, most: usize) -> Result<()> {
    lines::files(changes, most).iter().try_for_each(print::styled)?;
    if hidden(changes, most) == 0 { Ok(context.home.saw_list(task, now())?) } else { Ok(()) }
}

/// Says before a run what of the files on this machine is not in a worktree.
pub(crate) async fn say_uncommitted(
    context: &Context,
    draft: &Draft,
    machine: Option<&MachineId>,
    machines: &Machines,
) {
    let is_here = machine.is_some() && machine == machines.this();
    let step = draft.steps.iter().find(|step| step.isolation == Some(Isolation::Worktree) && step.machine.is_none());
    let Some(step) = step.filter(|_| is_here && !context.json) else { return };
    let environment = environment();
    for sentence in ensemble_runner::absent_in_worktree(Path::new(&*step.directory), &environment).await {
        print::note(sentence);
    }
    let found = ensemble_runner::uncommitted_files(Path::new(&*step.directory), &environment).await;
    if let Some(count) = found.filter(|count| *count > 0) {
        let (files, have) = (files_word(count), if count == 1 { "has" } else { "have" });
        print::note(format!("{files} here {have} uncommitted changes. They are not in the worktree."));
    }
}

/// The tasks that a command is about: the one that is named, or all that it can do something for.
pub(crate) fn chosen<'r>(
    run: &'r Run,
    named: Option<&str>,
    fits: impl Fn(&Task, ChangesState) -> bool,
) -> Result<Vec<(usize, &'r Task)>> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    if named.is_some() {
        let task = find(run, named)?;
        let number = tasks.iter().position(|other| other.id == task.id).unwrap_or_default();
        return Ok(vec![(number, task)]);
    }
    let state = |task: &Task| task.changes.as_ref().map(|changes| changes.state);
    Ok(tasks.iter().enumerate().filter(|(_, task)| state(task).is_some_and(|state| fits(task, state))).collect())
}

/// Why an order is still open.
pub(crate) fn why_open(task: &Task, changes: &TaskChanges, machines: &Machines) -> String {
    let known = task.machine_id.as_ref().and_then(|id| machines.get(id));
    let machine = task.machine_id.as_ref().map_or("its machine".to_owned(), |id| machines.called(id));
    let does = if changes.state == ChangesState::Discarding { "removes the worktree" } else { "applies this" };
    if !changes.is_away() {
        return format!("{machine} has not ended yet. It {does}");
    }
    let since = known.and_then(|known| known.machine.last_active_at).map(when::clock);
    let since = since.map_or(String::new(), |since| format!(" since {since}"));
    format!("{machine} is away{since}. It {does} when it is back, within 24 hours")
}

/// The exit code of an order that did not reach its end.
pub(crate) fn unfinished(changes: &TaskChanges, before: ExitCode) -> ExitCode {
    if changes.state.is_ordered() && changes.is_away() && before == DONE {
        return ExitCode::from(WAITS_FOR_MACHINE);
    }
    if changes.state.is_ordered() && changes.is_away() { before } else { ExitCode::FAILURE }
}

#[cfg(test)]
pub(crate) mod tests {
    use ensemble_types::runs::Task;

    /// A task that has completed in 5 s.
    pub(crate) fn task(key: &str) -> Task {
        let id = ensemble_types::ids::TaskId::generate();
        let task = serde_json::json!({
            "id": id, "ref": ensemble_types::refs::Ref::of(&id), "taskKey": key, "provider": "codex", "dependsOn": [],
            "status": "completed", "attempt": 1, "createdAt": "1970-01-01T00:00:00.000Z",
            "startedAt": "1970-01-01T00:00:10.000Z", "finishedAt": "1970-01-01T00:00:15.000Z",
        });
        serde_json::from_value(task).unwrap()
    }
}
