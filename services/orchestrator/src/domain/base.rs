//! What the worktrees of tasks begin with: a git ref, or what another task of the run left.

use ensemble_types::runs::{CreateTask, Isolation};

use super::TaskGraph;
use super::draft_checks::FieldErrors;

const NOT_A_REF: &str = "must be the key of a task in dependsOn, or a git ref: A-Z a-z 0-9 . _ / @ + = -, not with - or . first, and no `..`";

/// For each task the position of the task that its `base` names, if it names one.
pub(super) fn find_bases(tasks: &[CreateTask], graph: &TaskGraph, errors: &mut FieldErrors) -> Vec<Option<usize>> {
    tasks.iter().enumerate().map(|(at, task)| find_base(tasks, graph, (at, task), errors)).collect()
}

fn find_base(
    tasks: &[CreateTask],
    graph: &TaskGraph,
    (at, task): (usize, &CreateTask),
    errors: &mut FieldErrors,
) -> Option<usize> {
    let base = task.base.as_deref()?;
    let pointer = format!("/tasks/{at}/base");
    if task.isolation != Some(Isolation::Worktree) {
        errors.require(false, &pointer, || "needs the isolation worktree".to_owned());
        return None;
    }
    let has_key = |other: &CreateTask| other.task_key.as_deref() == Some(base);
    let named = graph.dependencies(at).iter().copied().find(|to| tasks.get(*to).is_some_and(has_key));
    match named.and_then(|to| Some((to, tasks.get(to)?))) {
        Some((to, other)) => {
            let has_worktree = other.isolation == Some(Isolation::Worktree);
            errors.require(has_worktree, &pointer, || format!("names the task {base:?}, which has no worktree"));
            Some(to)
        }
        None if tasks.iter().any(has_key) => {
            errors.require(false, &pointer, || format!("names the task {base:?}: name it in dependsOn, too"));
            None
        }
        None => {
            errors.require(is_ref(base), &pointer, || NOT_A_REF.to_owned());
            None
        }
    }
}

/// What git could take for an option, a range or a path is none.
fn is_ref(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/@+=-".contains(&byte);
    let begins_well =
        text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'@');
    begins_well && text.bytes().all(is_plain) && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use ensemble_types::runs::CreateRun;

    use super::*;
    use crate::domain::{InvalidRun, RunDraft};

    #[test]
    fn a_ref_is_never_an_option_a_range_or_a_path() {
        for good in ["main", "v1.2", "origin/feature/x", "0a1b2c", "@", "_x+y=z"] {
            assert!(is_ref(good), "{good}");
        }
        for bad in
            ["", "-x", "--upload-pack=x", "a..b", "a b", "a:b", "a^", "HEAD~1", "@{u}", ".git", "/x", "a\nb", "ä"]
        {
            assert!(!is_ref(bad), "{bad}");
        }
    }

    fn bases(tasks: &str) -> Result<Vec<Option<usize>>, Vec<(String, String)>> {
        let request: CreateRun = serde_json::from_str(&format!(r#"{{"tasks":[{tasks}]}}"#)).unwrap();
        match RunDraft::new(request) {
            Ok(draft) => Ok(draft.tasks.iter().map(|task| task.base_task).collect()),
            Err(InvalidRun::Fields(fields)) => Err(fields),
            Err(InvalidRun::Graph(error)) => panic!("{error}"),
        }
    }

    fn task(fields: &str) -> String {
        format!(r#"{{"prompt":"p","provider":"claude"{fields}}}"#)
    }

    #[test]
    fn a_base_is_a_ref_or_a_dependency_with_a_worktree() {
        let first = task(r#","taskKey":"a","isolation":"worktree""#);
        let on_a = task(r#","isolation":"worktree","base":"a","dependsOn":["a"]"#);
        assert_eq!(bases(&format!("{first},{on_a}")), Ok(vec![None, Some(0)]));
        assert_eq!(bases(&task(r#","isolation":"worktree","base":"main""#)), Ok(vec![None]));
        let plain = task(r#","taskKey":"a""#);
        let not_after = task(r#","isolation":"worktree","base":"a""#);
        for (tasks, at) in [
            (format!("{plain},{on_a}"), 1),
            (format!("{first},{not_after}"), 1),
            (task(r#","base":"main""#), 0),
            (task(r#","isolation":"shared","base":"main""#), 0),
            (task(r#","isolation":"worktree","base":"--exec=x""#), 0),
        ] {
            let errors = bases(&tasks).unwrap_err();
            assert_eq!(errors.first().unwrap().0, format!("/tasks/{at}/base"), "{tasks}");
        }
    }
}
