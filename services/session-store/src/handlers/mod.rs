//! Handlers of the public routes. They translate between HTTP and operations: one file for each noun, one function for each
//! verb.

pub(crate) mod hints;
pub(crate) mod live;
pub(crate) mod looks;
pub(crate) mod messages;
pub(crate) mod public_links;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod stream;

use ensemble_chassis::Caller;

use crate::domain::access::Actor;

/// Who calls, for operations.
fn actor(caller: &Caller) -> Actor {
    Actor { user: caller.user, machine: caller.machine.clone() }
}
