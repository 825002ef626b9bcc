//! What is said of runs that no device of the person has signed.

use ensemble_types::runs::{Run, Task};

use crate::failure::{Failure, Result};
use crate::progress::name;

/// In the place of what nobody has signed.
pub(crate) const NOT_SIGNED: &str = "not signed by your devices";
/// Behind the title of what is sealed for its machine. It is the server's word.
pub(crate) const NOT_CHECKED: &str = "not checked: sealed";

/// What is to be said of the title of a task that a good signature does not prove.
pub(crate) fn doubt(task: &Task) -> Option<&'static str> {
    let doubt = if task.session.is_some() { NOT_CHECKED } else { NOT_SIGNED };
    task.signed.is_none().then_some(doubt)
}

/// Refuses to order something about a task that the owner's devices have not signed.
pub(crate) fn must_be_signed(run: &Run, task: &Task) -> Result<()> {
    let number = run.tasks.iter().flatten().position(|other| other.id == task.id).unwrap_or_default();
    let (called, run) = (name(task, number), run.reference);
    match doubt(task) {
        None => Ok(()),
        Some(NOT_CHECKED) => Err(Failure::message(format!(
            "{called} of run {run} is a live session, as the server says. It is sealed for its machine and cannot be checked here, so \
             nothing was done with it. Say it there: `ensemble prompt`."
        ))),
        Some(_) => Err(Failure::message(format!(
            "{called} of run {run} is {NOT_SIGNED}, so nothing was done with it. The server may have answered with another run: do not \
             trust it. Or it was submitted without `ensemble`, which signs."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::AccountKey;
    use ensemble_protocol::seal::{SignedAs, sign_clear};
    use ensemble_types::runs::TaskSession;

    use super::*;
    use crate::progress::tests::task;

    #[test]
    fn a_session_that_the_server_made_up_is_not_ordered_about() {
        let mut sealed = task("a");
        assert_eq!(doubt(&sealed), Some(NOT_SIGNED));
        sealed.session = Some(TaskSession::Start);
        assert_eq!(doubt(&sealed), Some(NOT_CHECKED));
        sealed.signed = Some(sign_clear(SignedAs::Task, "{}", None, &AccountKey::generate()).unwrap());
        assert_eq!(doubt(&sealed), None);
    }
}
