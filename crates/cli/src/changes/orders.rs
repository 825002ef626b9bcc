//! Orders about what tasks changed: signed, and about what was shown.

use std::time::{Duration, Instant};

use ensemble_client::seal::TaskAction;
use ensemble_types::runs::{Run, Task, TaskChanges};
use ensemble_types::signatures::ChangesOrder;

use super::{counted, files, is_away};
use crate::context::{Context, Me};
use crate::failure::{Failure, Result};
use crate::origin::must_be_signed;
use crate::print;
use crate::progress::name;
use crate::sealing::{Wanted, sign_order};

/// How long one call waits for the machine, and how long the calls do in all.
const ONE_WAIT: Duration = Duration::from_secs(20);
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

/// What the owner wants to become of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Apply,
    Discard,
}

/// Gives the order, and waits until the machine has carried it out. It is about what was shown: where that was nothing, the list of files is
/// shown now. `unseen`: also where a part could not be shown.
pub(crate) async fn order(
    (context, me): (&Context, &Me),
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
    let signed = ChangesOrder::from(sign_order(me, task, Wanted::Changes { action, seen, unseen })?);
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
        return Err(Failure::message(format!("It is not known what {} changed.", name(task, number))));
    };
    if wish == Wish::Apply && !changes.is_whole() && !unseen {
        return Err(Failure::message(format!(
            "A part of what {} changed cannot be shown, so it was not applied. `ensemble diff {run}` shows the rest, and `ensemble apply {run} \
             --unseen` applies it all the same, with what nobody has seen.",
            name(task, number),
            run = run.reference
        )));
    }
    if unseen && !context.json {
        print::note(format!("⚠ {}: also with what could not be shown.", name(task, number)));
    }
    if let Some(seen) = context.seen(task)? {
        return seen.of(changes).ok_or_else(|| {
            let called = name(task, number);
            let run = run.reference;
            Failure::message(format!(
                "What {called} changed has changed since you looked, so nothing was done. Look at it again: `ensemble diff {run}`."
            ))
        });
    }
    if !context.json && changes.file_count > 0 {
        print::line(format!("{}: {}", name(task, number), counted(changes)))?;
        files(changes)?;
    }
    Ok(changes.list_digest())
}
