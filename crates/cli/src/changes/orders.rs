//! Orders about what tasks changed: signed, and about what was shown.

use std::time::{Duration, Instant};

use ensemble_account::Account;
use ensemble_account::runs::must_be_signed;
use ensemble_account::tasks::{TaskAction, Wanted};
use ensemble_types::runs::{Run, Task, TaskChanges};
use ensemble_types::signatures::ChangesOrder;

use super::{counted, is_away, show_files};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;
use crate::seen::Shown;

/// How long one call waits for the machine, and how long the calls do in all.
const ONE_WAIT: Duration = Duration::from_secs(20);
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

/// What the owner wants done with changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Apply,
    Discard,
}

/// Gives the order, and waits until the machine has carried it out. It is about what was shown: if nothing was, the whole list of files is
/// shown now. `unseen`: also with what was not shown.
pub(crate) async fn order(
    (context, me): (&Context, &Account),
    (run, task): (&Run, &Task),
    wish: Wish,
    unseen: bool,
) -> Result<TaskChanges> {
    must_be_signed(run, task)?;
    let action = match wish {
        Wish::Apply => TaskAction::Apply,
        Wish::Discard => TaskAction::Discard,
    };
    let seen = seen(context, (run, task), wish, unseen)?;
    let signed = ChangesOrder::from(me.order(run, task, Wanted::Changes { action, seen, unseen })?);
    let begun = Instant::now();
    loop {
        let answer = match wish {
            Wish::Apply => me.client.apply_changes(run.id, task.id, &signed, ONE_WAIT).await?,
            Wish::Discard => me.client.discard_changes(run.id, task.id, &signed, ONE_WAIT).await?,
        };
        let Some(changes) = answer.changes else {
            return Err(Failure::message("The server does not know what the task changed. Update the server."));
        };
        if !changes.state.is_ordered() || is_away(&changes) || begun.elapsed() > LONGEST_WAIT {
            return Ok(changes);
        }
    }
}

/// The digest of what was shown of the changes that an order is about.
fn seen(context: &Context, (run, task): (&Run, &Task), wish: Wish, unseen: bool) -> Result<String> {
    let number = run.tasks.iter().flatten().position(|other| other.id == task.id).unwrap_or_default();
    let Some(changes) = &task.changes else {
        return Err(Failure::message(format!("It is not known what {} changed.", task.called(number))));
    };
    let before = context.seen(task)?.map(|seen| seen.of(changes));
    let action = if wish == Wish::Apply { "apply" } else { "discard" };
    if let Some(why) = refusal(changes, before.as_ref(), wish, context.json).filter(|_| !unseen) {
        return Err(Failure::message(why.sentence(&task.called(number), run, action)));
    }
    if unseen && wish == Wish::Apply && !context.json {
        print::note(format!("⚠ {}: also with what was not shown.", task.called(number)));
    }
    match before.flatten() {
        Some(Shown::Diff(digest) | Shown::List(digest)) => return Ok(digest),
        // A person who discards it unseen has agreed to lose it.
        None if context.json || changes.file_count == 0 || (unseen && wish == Wish::Discard) => {}
        None => {
            print::line(format!("{}: {}", task.called(number), counted(changes)))?;
            show_files(context, task, changes, usize::MAX)?;
        }
    }
    Ok(changes.list_digest())
}

/// Why an order is not signed without `--unseen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotSeen {
    /// It differs from what was shown.
    Changed,
    /// The list of files is cut, and the diff was not shown.
    LongList,
    /// A part of the diff is missing.
    Part,
    /// A program wants it, and a person was shown nothing.
    Nothing,
}

/// `before`: what was shown on this device, and `Some(None)` when that has changed since.
fn refusal(changes: &TaskChanges, before: Option<&Option<Shown>>, wish: Wish, is_program: bool) -> Option<NotSeen> {
    match before {
        Some(None) => Some(NotSeen::Changed),
        Some(Some(Shown::Diff(_))) => None,
        _ if wish == Wish::Apply && !changes.has_whole_diff() => Some(NotSeen::Part),
        _ if wish == Wish::Apply && !changes.has_whole_list() => Some(NotSeen::LongList),
        None if is_program && changes.file_count > 0 => Some(NotSeen::Nothing),
        _ => None,
    }
}

impl NotSeen {
    fn sentence(self, called: &str, run: &Run, action: &str) -> String {
        let run = run.reference;
        let (look, all_the_same) = (format!("`ensemble diff {run}`"), format!("`ensemble {action} {run} --unseen`"));
        match self {
            Self::Changed => format!(
                "What {called} changed has changed since you looked, so nothing was done. Look at it again: {look}. Or do it with what you \
                 have not seen: {all_the_same}."
            ),
            Self::LongList => format!(
                "{called} changed too many files to list them, so nothing was done. {look} shows what it changed, and then it can be done. \
                 {all_the_same} does it with what you have not seen."
            ),
            Self::Part => format!(
                "A part of what {called} changed cannot be shown, so it was not applied. {look} shows the rest, and {all_the_same} applies \
                 it all the same, with what you have not seen."
            ),
            Self::Nothing => format!(
                "What {called} changed was not shown on this device, so nothing was done. {look} shows it. {all_the_same} does it unseen."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::changed;
    use ensemble_types::runs::ChangesState;

    #[test]
    fn an_order_is_signed_for_what_was_shown() {
        let mut changes = changed(ChangesState::Kept);
        let list = Some(Shown::List("l".to_owned()));
        let diff = Some(Shown::Diff("d".to_owned()));
        let refused = |changes: &TaskChanges, before: Option<&Option<Shown>>, is_program| {
            [Wish::Apply, Wish::Discard].map(|wish| refusal(changes, before, wish, is_program))
        };
        assert_eq!(refused(&changes, None, false), [None, None], "all files are printed now");
        assert_eq!(refused(&changes, None, true), [Some(NotSeen::Nothing); 2], "a program prints nothing");
        assert_eq!(refused(&changes, Some(&list), true), [None, None]);
        assert_eq!(refused(&changes, Some(&None), false), [Some(NotSeen::Changed); 2]);
        changes.file_count = 300;
        assert_eq!(refused(&changes, Some(&list), false), [Some(NotSeen::LongList), None]);
        assert_eq!(refused(&changes, Some(&diff), false), [None, None], "the whole diff was shown");
        changes.diff_truncated = true;
        assert_eq!(refused(&changes, Some(&list), false), [Some(NotSeen::Part), None]);
    }
}
