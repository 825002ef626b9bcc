//! What tasks changed, for people: summaries, and what to type next.

use ensemble_types::changes::{ChangedFile, FileChange};
use ensemble_types::line::inline;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};

use super::{Styled, Tone};
use crate::about::below;

/// Files of a task that a summary names.
pub const SHOWN_FILES: usize = 12;

/// The tasks that changed files, with their positions.
pub fn with_files(tasks: &[Task]) -> impl Iterator<Item = (usize, &Task, &TaskChanges)> {
    worth_saying(tasks).filter(|(_, _, changes)| changes.file_count > 0)
}

/// The tasks that changed something, as far as is known, with their positions.
pub fn worth_saying(tasks: &[Task]) -> impl Iterator<Item = (usize, &Task, &TaskChanges)> {
    let with_changes =
        tasks.iter().enumerate().filter_map(|(number, task)| Some((number, task, task.changes.as_ref()?)));
    with_changes.filter(|(_, _, changes)| changes.has_something())
}

/// Why the machine could not carry out an order.
pub fn why_failed(changes: &TaskChanges) -> String {
    changes.failure.as_deref().map_or_else(|| "The log of its runner says why".to_owned(), inline)
}

/// What the machine had to say about the changes, one sentence on a line.
pub fn notes(changes: &TaskChanges) -> impl Iterator<Item = String> {
    changes.notes.iter().map(|note| format!("  ! {}", inline(note)))
}

/// `fix: changed 3 files, +10 −2, kept in a worktree`. `home`: the home directory of this computer.
pub fn headline(run: &Run, (number, task): (usize, &Task), changes: &TaskChanges, home: &str) -> String {
    let place = match changes.state {
        ChangesState::Kept if run.was_applied_with(task) => ", applied with the task that continued them".to_owned(),
        ChangesState::None => {
            task.working_directory.as_deref().map_or(String::new(), |path| format!(", in {}", below(home, path)))
        }
        ChangesState::Kept => ", kept in a worktree".to_owned(),
        ChangesState::Applying => ", being applied".to_owned(),
        ChangesState::Applied => ", applied".to_owned(),
        ChangesState::Conflicted => ", kept in a worktree: they could not be applied".to_owned(),
        ChangesState::Discarding => ", being discarded".to_owned(),
        ChangesState::Discarded if changes.was_applied => ", applied; the worktree is removed".to_owned(),
        ChangesState::Discarded => ", discarded".to_owned(),
        ChangesState::Lost => ", lost with their machine".to_owned(),
    };
    if changes.unknown {
        return format!("{}: it is not known what it changed{place}", task.called(number));
    }
    format!("{}: changed {}{place}", task.called(number), counted(changes))
}

/// `3 files, +10 −2`
pub fn counted(changes: &TaskChanges) -> String {
    format!("{}, {}", files_word(changes.file_count), counts(Some(changes.added), Some(changes.removed)))
}

pub fn files_word(count: u32) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// The first files with their counts, one on a line.
pub fn files(changes: &TaskChanges, most: usize) -> Vec<Styled> {
    let hidden = hidden(changes, most);
    let more = (hidden > 0).then(|| Styled::new(Tone::Plain, &format!("  … {hidden} more")));
    changes.files.iter().take(most).map(line).chain(more).collect()
}

/// How many of the files that changed are not printed.
pub fn hidden(changes: &TaskChanges, most: usize) -> usize {
    usize::try_from(changes.file_count).unwrap_or(usize::MAX).saturating_sub(changes.files.len().min(most))
}

fn line(file: &ChangedFile) -> Styled {
    let (tone, mark) = match file.kind {
        FileChange::Added => (Tone::Good, "A"),
        FileChange::Modified => (Tone::Busy, "M"),
        FileChange::Deleted => (Tone::Bad, "D"),
    };
    let counts = match (file.added, file.removed) {
        (None, None) => "binary".to_owned(),
        (added, removed) => counts(added, removed),
    };
    Styled::new(tone, &format!("  {mark} "))
        .with(Tone::Plain, &inline(&file.path))
        .with(Tone::Dim, &format!("  {counts}"))
}

fn counts(added: Option<u64>, removed: Option<u64>) -> String {
    format!("+{} −{}", added.unwrap_or(0), removed.unwrap_or(0))
}

/// What to type next.
pub fn next_steps(run: &Run, is_shown: bool) -> Vec<String> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let mut steps = Vec::new();
    let look = (!is_shown).then(|| format!("ensemble diff {}       shows the changes", run.reference));
    let uncommitted = tasks.iter().filter_map(|task| task.changes.as_ref()).map(|changes| changes.uncommitted).max();
    let is_kept = |changes: &TaskChanges| matches!(changes.state, ChangesState::Kept | ChangesState::Conflicted);
    if worth_saying(tasks).any(|(_, task, changes)| is_kept(changes) && !run.was_applied_with(task)) {
        if let Some(count) = uncommitted.filter(|count| *count > 0) {
            let (files, have) = (files_word(count), if count == 1 { "has" } else { "have" });
            steps.push(format!("{files} of yours {have} uncommitted changes. The worktree began without them."));
        }
        steps.push(String::new());
        steps.extend(look);
        steps.push(format!("ensemble apply {}      brings them into your directory", run.reference));
        steps.push(format!("ensemble discard {}    removes them", run.reference));
    } else if with_files(tasks).next().is_some() {
        steps.extend(look.map(|look| format!("\n{look}")));
    } else if tasks
        .iter()
        .any(|task| task.changes.as_ref().is_some_and(|changes| is_kept(changes) && changes.was_applied))
    {
        steps.push(format!("\nensemble apply {}      takes back what was applied", run.reference));
    } else if tasks.iter().any(|task| task.changes.as_ref().is_some_and(is_kept)) {
        steps.push(format!("\nNothing was changed. `ensemble discard {}` removes the worktree.", run.reference));
    }
    steps
}

#[cfg(test)]
mod tests {
    use ensemble_types::text::Text;

    use super::*;
    use crate::lines::tests::task;

    fn changed(state: ChangesState) -> TaskChanges {
        TaskChanges {
            state,
            was_applied: false,
            waiting_for: None,
            files: vec![ChangedFile {
                path: Text::new("a\x1b[31m\nb").unwrap(),
                kind: FileChange::Added,
                added: Some(3),
                removed: Some(0),
            }],
            file_count: 1,
            added: 3,
            removed: 0,
            uncommitted: 2,
            conflicted: Vec::new(),
            unknown: false,
            notes: Vec::new(),
            failure: None,
            diff_truncated: false,
        }
    }

    #[test]
    fn a_summary_names_files_and_cannot_control_the_terminal() {
        let mut one = task("fix");
        one.changes = Some(changed(ChangesState::Kept));
        assert_eq!(
            headline(&run(vec![]), (0, &one), one.changes.as_ref().unwrap(), ""),
            "fix: changed 1 file, +3 −0, kept in a worktree"
        );
        let file = line(&one.changes.as_ref().unwrap().files[0]).render(None, false);
        assert_eq!(file, "  A a\u{fffd}[31m b  +3 −0");
    }

    #[test]
    fn a_list_was_shown_when_no_file_of_it_is_hidden() {
        let mut changes = changed(ChangesState::Kept);
        let one = changes.files[0].clone();
        (changes.files, changes.file_count) = (vec![one; 20], 20);
        assert_eq!((hidden(&changes, SHOWN_FILES), hidden(&changes, usize::MAX)), (8, 0));
        changes.file_count = 300;
        assert_eq!(hidden(&changes, usize::MAX), 280, "the list itself is cut");
    }

    #[test]
    fn only_the_last_of_worktrees_that_begin_with_each_other_is_applied() {
        let (mut first, mut second) = (task("a"), task("b"));
        first.changes = Some(changed(ChangesState::Kept));
        second.changes = Some(changed(ChangesState::Kept));
        (second.base, second.depends_on) = (Some("a".to_owned()), vec![first.id]);
        let mut run = run(vec![first, second]);
        let tasks = run.tasks.as_deref().unwrap();
        assert!(run.is_continued(&tasks[0]) && !run.is_continued(&tasks[1]));
        assert_eq!(run.began_with(&tasks[1])[0].id, tasks[0].id);
        assert!(!run.was_applied_with(&tasks[0]));
        let steps = next_steps(&run, false).join("\n");
        assert!(
            steps.contains("\n\nensemble diff") && !next_steps(&run, true).join("\n").contains("ensemble diff"),
            "{steps}"
        );
        assert!(
            steps.contains("ensemble apply") && steps.contains("2 files of yours have uncommitted changes"),
            "{steps}"
        );

        run.tasks.as_mut().unwrap()[1].stale = true;
        assert!(!run.is_continued(&run.tasks.as_deref().unwrap()[0]), "the first one has continued since");
        run.tasks.as_mut().unwrap()[1].stale = false;
        let applied = run.tasks.as_mut().unwrap()[1].changes.as_mut().unwrap();
        (applied.state, applied.was_applied) = (ChangesState::Applied, true);
        let tasks = run.tasks.as_deref().unwrap();
        let first = headline(&run, (0, &tasks[0]), tasks[0].changes.as_ref().unwrap(), "");
        assert!(first.ends_with(", applied with the task that continued them"), "{first}");
        assert!(!next_steps(&run, false).join("\n").contains("ensemble apply"));
    }

    fn run(tasks: Vec<Task>) -> Run {
        let id = ensemble_types::ids::RunId::generate();
        let text = serde_json::json!({
            "id": id, "ref": ensemble_types::refs::Ref::of(&id), "title": null, "status": "completed", "cancelReason": null,
            "maxConcurrency": 4, "spread": false, "machineId": null,
            "summary": { "total": 2, "queued": 0, "running": 0, "completed": 2, "failed": 0, "cancelled": 0 },
            "version": 1, "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
            "startedAt": null, "finishedAt": null, "tasks": tasks,
        });
        serde_json::from_value(text).unwrap()
    }
}
