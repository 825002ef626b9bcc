//! What is said of runs that no device of the person has signed.

use ensemble_account::runs::Doubt;
use ensemble_types::runs::Task;

/// Shown in place of what is not signed.
pub(crate) const NOT_SIGNED: &str = "not signed by your devices";
/// Behind the title of what is sealed for its machine. It is the server's word.
pub(crate) const NOT_CHECKED: &str = "not checked: sealed";

/// What is to be said of the title of a task that a good signature does not prove.
pub(crate) fn doubt(task: &Task) -> Option<&'static str> {
    Doubt::of(task).map(|doubt| match doubt {
        Doubt::NotSigned => NOT_SIGNED,
        Doubt::Sealed => NOT_CHECKED,
    })
}
