//! Whether a task is one that the owner wants done.

use std::borrow::Cow;
use std::time::Duration;

use ensemble_client::devices::List;
use ensemble_protocol::seal::{SessionTask, SignedTask};
use ensemble_types::devices::Role;
use ensemble_types::leases::Lease;
use ensemble_types::runs::{Permission, Provider, TaskSession};
use ensemble_types::time::Timestamp;

/// The longest time that a task may be valid.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How much the clocks of the signer and of this machine may differ.
pub(super) const CLOCKS: Duration = Duration::from_secs(300);

const TOO_LONG: &str = "it is good for longer than 7 days";

/// Why a task is not done. The server gets the code and its sentence, which say nothing about the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) sentence: Cow<'static, str>,
    /// For this machine's log.
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn not_signed(why: impl Into<String>) -> Self {
        let sentence = "The machine does only what a primary or linked device of its owner has signed for it, once, and without permission \
                        checks only what a primary device has signed. It has done nothing.";
        Self { code: "TASK_NOT_SIGNED", sentence: sentence.into(), why: why.into() }
    }

    /// A task or an order in the clear that is not signed as it is.
    pub(crate) fn clear(why: impl Into<String>) -> Self {
        let sentence = "The machine does only what a primary or linked device of its owner has signed for it, once, and without permission \
                        checks only what a primary device has signed. It has done nothing. Submit it with `ensemble`, which signs. `accept: any` \
                        in runner.yaml on the machine takes unsigned tasks too: then the server controls what the machine does.";
        Self { code: "TASK_NOT_SIGNED", sentence: sentence.into(), why: why.into() }
    }

    /// The owner's devices are not known here.
    pub(crate) fn no_list(sentence: &'static str) -> Self {
        Self { code: "HOST_BUSY", sentence: sentence.into(), why: "the owner's devices are not known".to_owned() }
    }

    /// `why` says what the time of the task is by the clock of the machine.
    pub(super) fn expired(why: impl Into<String>) -> Self {
        let why = why.into();
        let sentence = format!("By the clock of the machine {why}. Submit it again.");
        Self { code: "EXPIRED", sentence: sentence.into(), why }
    }

    /// Names the clock that is wrong. `ahead`: how many seconds this machine's clock is ahead of the server's.
    pub(super) fn with_clock(self, ahead: i64) -> Self {
        if self.code != "EXPIRED" || self.why == TOO_LONG {
            return self;
        }
        let which = if ahead.unsigned_abs() >= 60 {
            let side = if ahead > 0 { "ahead of" } else { "behind" };
            format!("The clock of the machine is {} {side} the server's: set it", minutes(ahead.unsigned_abs()))
        } else {
            "The clock of the machine agrees with the server's: if the task is new, set the clock of the device that signed it".to_owned()
        };
        let sentence = format!("By the clock of the machine {}. {which}, and submit it again.", self.why);
        Self { sentence: sentence.into(), ..self }
    }

    pub(crate) fn unsupported(why: impl Into<String>) -> Self {
        let sentence = "The runner of the machine does not know this kind of task. Update it.";
        Self { code: "TASK_NOT_SUPPORTED", sentence: sentence.into(), why: why.into() }
    }

    /// A tool that a device names which is not primary.
    pub(super) fn tool(tool: &str, provider: Provider) -> Self {
        let sentence = format!(
            "Only a primary device may let an agent use tools that the machine's configuration does not name. Submit it on a primary device, or \
             add {tool:?} to providers.{provider}.allowedTools in runner.yaml on the machine."
        );
        Self { code: "TOOLS_NOT_ALLOWED", sentence: sentence.into(), why: "its signer is no primary device".to_owned() }
    }

    pub(super) fn busy(why: impl Into<String>) -> Self {
        let sentence = "The machine cannot take the task now. Its log says why.";
        Self { code: "HOST_BUSY", sentence: sentence.into(), why: why.into() }
    }
}

/// Checks an opened task whose signature is good, by the owner's newest list.
pub(super) fn check(
    opened: &SignedTask,
    list: &List,
    (lease, session): (&Lease, TaskSession),
    now: Timestamp,
) -> Result<SessionTask, Refused> {
    let role = signer(&opened.key, list)?;
    let task: SessionTask =
        serde_json::from_str(&opened.body).map_err(|error| Refused::unsupported(error.to_string()))?;
    if (task.run_id, task.task_id) != (lease.run_id, lease.task_id) {
        return Err(Refused::not_signed("it was signed as another task"));
    }
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
    if task.provider != lease.provider {
        let why = format!("the server says {}, and its signer {}", lease.provider, task.provider);
        return Err(Refused::not_signed(why));
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
        return Err(Refused::expired(format!("it was signed {} in the future", minutes(at.since(now).as_secs()))));
    }
    if expires <= now {
        return Err(Refused::expired(format!("it ran out {} ago", minutes(now.since(expires).as_secs()))));
    }
    if expires > at.plus(LONGEST_LIFE) {
        return Err(Refused::expired(TOO_LONG));
    }
    Ok(())
}

/// `12 min`, rounded.
fn minutes(seconds: u64) -> String {
    format!("{} min", (seconds + 30) / 60)
}
