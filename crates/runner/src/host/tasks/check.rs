//! Whether a task is one that the owner wants done.

use std::time::Duration;

use ensemble_client::devices::List;
use ensemble_client::seal::{SessionTask, SignedTask};
use ensemble_types::devices::Role;
use ensemble_types::runs::{Permission, Provider, TaskSession};
use ensemble_types::time::Timestamp;

/// The longest time for which a task may be good.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How much the clocks of the signer and of this machine may differ.
pub(super) const CLOCKS: Duration = Duration::from_secs(300);

/// Why a task is not done. The server gets the code and its sentence, which say nothing about the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) sentence: &'static str,
    /// For this machine's log.
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn not_signed(why: impl Into<String>) -> Self {
        let sentence = "The machine does only what a primary or linked device of its owner has signed for it, once, and without permission \
                        checks only what a primary device has signed. It has done nothing.";
        Self { code: "TASK_NOT_SIGNED", sentence, why: why.into() }
    }

    /// A task or an order in the clear that nobody has signed as it is.
    pub(crate) fn clear(why: impl Into<String>) -> Self {
        let sentence = "The machine does only what a primary or linked device of its owner has signed for it, once, and without permission \
                        checks only what a primary device has signed. It has done nothing. Submit it with `ensemble`, which signs. `accept: any` \
                        in runner.yaml on the machine takes unsigned tasks too: then who controls the server controls what the machine does.";
        Self { code: "TASK_NOT_SIGNED", sentence, why: why.into() }
    }

    /// The owner's devices are not known here.
    pub(crate) fn no_list(sentence: &'static str) -> Self {
        Self { code: "HOST_BUSY", sentence, why: "the owner's devices are not known".to_owned() }
    }

    pub(super) fn expired(why: &str) -> Self {
        let sentence = "By the clock of the machine the task is too old, from the future, or good for longer than 7 days. Submit it anew.";
        Self { code: "EXPIRED", sentence, why: why.to_owned() }
    }

    pub(crate) fn unsupported(why: impl Into<String>) -> Self {
        let sentence = "The runner of the machine does not know this kind of task. Update it.";
        Self { code: "TASK_NOT_SUPPORTED", sentence, why: why.into() }
    }

    pub(super) fn busy(why: impl Into<String>) -> Self {
        let sentence = "The machine cannot take the task now. Its log says why.";
        Self { code: "HOST_BUSY", sentence, why: why.into() }
    }
}

/// Checks an opened task whose signature is good, by the owner's newest list.
pub(super) fn check(
    opened: &SignedTask,
    list: &List,
    (provider, session): (Provider, TaskSession),
    now: Timestamp,
) -> Result<SessionTask, Refused> {
    let role = signer(&opened.key, list)?;
    let task: SessionTask =
        serde_json::from_str(&opened.body).map_err(|error| Refused::unsupported(error.to_string()))?;
    match (task.session, &task.prompt) {
        (TaskSession::Start, None) => {}
        (TaskSession::Turn, Some(prompt)) if !prompt.trim().is_empty() => {}
        _ => return Err(Refused::unsupported("a prompt is for the task that is a turn, and for no other")),
    }
    if task.session != session {
        return Err(Refused::not_signed("the server says that it is another kind of task than its signer"));
    }
    if task.mode == Permission::Bypass && role != Role::Primary {
        return Err(Refused::not_signed("only a primary device starts a session in bypass"));
    }
    if task.provider != provider {
        return Err(Refused::not_signed(format!("the server says {provider}, and its signer {}", task.provider)));
    }
    check_time(task.at, task.expires, now)?;
    Ok(task)
}

/// The role of a device that may have this machine do something.
pub(super) fn signer(key: &str, list: &List) -> Result<Role, Refused> {
    match list.device(key).map(|device| device.role) {
        Some(role @ (Role::Primary | Role::Linked)) => Ok(role),
        _ => Err(Refused::not_signed(format!("{key} is no primary or linked device of the owner"))),
    }
}

pub(super) fn check_time(at: Timestamp, expires: Timestamp, now: Timestamp) -> Result<(), Refused> {
    if at > now.plus(CLOCKS) {
        return Err(Refused::expired("it is from the future"));
    }
    if expires <= now {
        return Err(Refused::expired("it has expired"));
    }
    if expires > at.plus(LONGEST_LIFE) {
        return Err(Refused::expired("it is good for longer than 7 days"));
    }
    Ok(())
}
