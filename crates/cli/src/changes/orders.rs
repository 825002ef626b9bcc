//! Orders about what tasks changed: signed, and about what was shown.

use ensemble_account::Account;
use ensemble_account::changes::{NotSeen, Shown, Wish, refusal};
use ensemble_account::runs::must_be_signed;
use ensemble_types::runs::{Run, Task, TaskChanges};

use super::{counted, show_files};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// Gives the order, and waits until the machine has carried it out. It is about what was shown: if nothing was, the whole list of files is
/// shown now. `unseen`: also with what was not shown.
pub(crate) async fn order(
    (context, me): (&Context, &Account),
    (run, task): (&Run, &Task),
    wish: Wish,
    unseen: bool,
) -> Result<TaskChanges> {
    must_be_signed(run, task)?;
    let seen = seen(context, (run, task), wish, unseen)?;
    Ok(me.order_changes((run, task), wish, seen, unseen).await?)
}

/// The digest of what was shown of the changes that an order is about.
fn seen(context: &Context, (run, task): (&Run, &Task), wish: Wish, unseen: bool) -> Result<String> {
    let number = run.tasks.iter().flatten().position(|other| other.id == task.id).unwrap_or_default();
    let Some(changes) = &task.changes else {
        return Err(Failure::message(format!("It is not known what {} changed.", task.called(number))));
    };
    let before = context.home.seen(task)?.map(|seen| seen.of(changes));
    let action = if wish == Wish::Apply { "apply" } else { "discard" };
    if let Some(why) = refusal(changes, before.as_ref(), wish, context.json).filter(|_| !unseen) {
        return Err(Failure::message(sentence(why, &task.called(number), run, action)));
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
fn sentence(why: NotSeen, called: &str, run: &Run, action: &str) -> String {
    let run = run.reference;
    let (look, all_the_same) = (format!("`ensemble diff {run}`"), format!("`ensemble {action} {run} --unseen`"));
    match why {
        NotSeen::Changed => format!(
            "What {called} changed has changed since you looked, so nothing was done. Look at it again: {look}. Or do it with what you \
             have not seen: {all_the_same}."
        ),
        NotSeen::LongList => format!(
            "{called} changed too many files to list them, so nothing was done. {look} shows what it changed, and then it can be done. \
             {all_the_same} does it with what you have not seen."
        ),
        NotSeen::Part => format!(
            "A part of what {called} changed cannot be shown, so it was not applied. {look} shows the rest, and {all_the_same} applies \
             it all the same, with what you have not seen."
        ),
        NotSeen::Nothing => format!(
            "What {called} changed was not shown on this device, so nothing was done. {look} shows it. {all_the_same} does it unseen."
        ),
    }
}
