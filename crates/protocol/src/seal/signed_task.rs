//! Tasks in the clear that a device of their owner has signed, and what the owner says about them later. The server reads them, and cannot
//! change what a machine does.

use ensemble_types::ids::MachineId;
pub use ensemble_types::signatures::{ClearTask, SignedBase, TaskAction, TaskOrder};
use ensemble_types::signatures::{Signed, SignedBody, TaskSignature};
use ensemble_types::text::Blob;

use super::task::SignedTask;
use super::{Result, SealError};
use crate::AccountKey;

/// What is signed. Each has a first line of its own, so that one is never taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedAs {
    /// A [`ClearTask`].
    Task,
    /// A [`TaskOrder`] that is a message to the agent.
    Message,
    /// A [`TaskOrder`] about what the task has changed.
    Order,
}

impl SignedAs {
    const fn first_line(self) -> &'static str {
        match self {
            Self::Task => "ensemble-task-clear-v2",
            Self::Message => "ensemble-task-message-v2",
            Self::Order => "ensemble-task-order-v2",
        }
    }
}

impl From<TaskAction> for SignedAs {
    fn from(action: TaskAction) -> Self {
        match action {
            TaskAction::Message => Self::Message,
            TaskAction::Apply | TaskAction::Discard => Self::Order,
        }
    }
}

/// Signs a [`ClearTask`] or a [`TaskOrder`], as JSON, for its machine. `None`: for any machine of the owner.
pub fn sign_clear(what: SignedAs, body: &str, machine: Option<&MachineId>, signer: &AccountKey) -> Result<Signed> {
    let blob = |text: String| Blob::new(text).map_err(|_| SealError::Format);
    let sig = Blob::new(signer.sign(&signed_text(what, machine, body))).map_err(|_| SealError::Format)?;
    let signature = TaskSignature { key: blob(signer.public_key())?, sig };
    Ok(Signed { signature, signed_body: SignedBody::new(body).map_err(|_| SealError::Format)? })
}

/// Checks the signature of what was signed for this machine, or for any. Whether the signer may have it done is for the caller to say.
pub fn open_clear(what: SignedAs, signed: &Signed, machine: &MachineId) -> Result<SignedTask> {
    let is_for = |machine| is_signed(what, signed, machine);
    if !is_for(Some(machine)) && !is_for(None) {
        return Err(SealError::TaskSignature);
    }
    Ok(SignedTask { body: signed.signed_body.to_string(), key: signed.signature.key.to_string() })
}

/// The task that was signed, for whatever machine, so that a person can be shown it. Whether the signer counts is for the caller to say.
pub fn read_clear(signed: &Signed) -> Result<ClearTask> {
    let task: ClearTask = serde_json::from_str(&signed.signed_body).map_err(|_| SealError::Format)?;
    match is_signed(SignedAs::Task, signed, task.machine_id.as_ref()) {
        true => Ok(task),
        false => Err(SealError::TaskSignature),
    }
}

fn is_signed(what: SignedAs, signed: &Signed, machine: Option<&MachineId>) -> bool {
    let Signed { signature: TaskSignature { key, sig }, signed_body } = signed;
    crate::lists::is_signed(key, &signed_text(what, machine, signed_body), sig)
}

/// The machine is empty when there is none.
fn signed_text(what: SignedAs, machine: Option<&MachineId>, body: &str) -> Vec<u8> {
    format!("{}\n{}\n{body}", what.first_line(), machine.map_or("", MachineId::as_str)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: SignedAs = SignedAs::Task;

    #[test]
    fn what_is_signed_for_one_machine_or_for_any_is_not_signed_for_another() {
        let (device, other, machine) = (AccountKey::generate(), AccountKey::generate(), MachineId::generate());
        let good = sign_clear(TASK, "{}", Some(&machine), &device).unwrap();
        assert_eq!(
            open_clear(TASK, &good, &machine),
            Ok(SignedTask { body: "{}".to_owned(), key: device.public_key() })
        );
        assert_eq!(open_clear(TASK, &good, &MachineId::generate()), Err(SealError::TaskSignature));
        let any = sign_clear(TASK, "{}", None, &device).unwrap();
        assert!(open_clear(TASK, &any, &machine).is_ok() && open_clear(TASK, &any, &MachineId::generate()).is_ok());
        let changed = Signed { signed_body: SignedBody::new("{ }").unwrap(), ..good.clone() };
        assert_eq!(open_clear(TASK, &changed, &machine), Err(SealError::TaskSignature));
        let of_other = sign_clear(TASK, "{}", Some(&machine), &other).unwrap().signature;
        let mixed = TaskSignature { key: of_other.key, ..good.signature.clone() };
        assert_eq!(open_clear(TASK, &Signed { signature: mixed, ..good }, &machine), Err(SealError::TaskSignature));
    }

    #[test]
    fn nothing_that_is_signed_reads_as_something_else() {
        let (device, machine) = (AccountKey::generate(), MachineId::generate());
        let all = [SignedAs::Task, SignedAs::Message, SignedAs::Order];
        for what in all {
            let signed = sign_clear(what, "{}", Some(&machine), &device).unwrap();
            let reads = all.map(|other| open_clear(other, &signed, &machine).is_ok());
            assert_eq!(reads, all.map(|other| other == what), "{what:?}");
        }
        let ids = r#""runId":"0193a1b2-0000-7000-8000-000000000001","taskId":"0193a1b2-0000-7000-8000-000000000002""#;
        let order = r#"{"action":"apply","taskId":"0193a1b2-0000-7000-8000-000000000001","taskDigest":"d","seen":"s","machineId":null,"nonce":"n",
            "at":"2026-01-01T00:00:00Z","expires":"2026-01-02T00:00:00Z"}"#;
        let task = r#"{"prompt":"p","provider":"claude","isolation":"none","machineId":null,"nonce":"n","at":"2026-01-01T00:00:00Z",
            "expires":"2026-01-02T00:00:00Z"}"#;
        let task = task.replacen('{', &format!("{{{ids},"), 1);
        assert!(serde_json::from_str::<TaskOrder>(order).is_ok() && serde_json::from_str::<ClearTask>(order).is_err());
        assert!(serde_json::from_str::<ClearTask>(&task).is_ok() && serde_json::from_str::<TaskOrder>(&task).is_err());
        assert!(serde_json::from_str::<super::super::SessionTask>(&task).is_err());
        let more = task.replace("\"isolation\"", "\"sandbox\":true,\"isolation\"");
        assert!(serde_json::from_str::<ClearTask>(&more).is_err());
        let base = |base: &str| task.replace("\"isolation\"", &format!("\"base\":{base},\"isolation\""));
        for (text, is_good) in [
            (r#"{"ref":"main"}"#, true),
            (r#"{"task":"0193a1b2-0000-7000-8000-000000000003"}"#, true),
            (r#""main""#, false),
            (r#"{"task":"main"}"#, false),
            (r#"{"ref":"main","task":"0193a1b2-0000-7000-8000-000000000003"}"#, false),
        ] {
            assert_eq!(serde_json::from_str::<ClearTask>(&base(text)).is_ok(), is_good, "{text}");
        }
    }

    #[test]
    fn a_person_is_shown_what_was_signed_for_its_machine() {
        let (device, machine) = (AccountKey::generate(), MachineId::generate());
        let body = format!(
            r#"{{"runId":"0193a1b2-0000-7000-8000-000000000001","taskId":"0193a1b2-0000-7000-8000-000000000002","title":"t","prompt":"p",
            "provider":"claude","isolation":"none","machineId":"{machine}","nonce":"n","at":"2026-01-01T00:00:00Z",
            "expires":"2026-01-02T00:00:00Z"}}"#
        );
        let read = |what, machine| read_clear(&sign_clear(what, &body, machine, &device).unwrap());
        assert_eq!(read(TASK, Some(&machine)).map(|task| task.title), Ok(Some("t".to_owned())));
        assert_eq!(read(TASK, None), Err(SealError::TaskSignature), "it names another machine than its signature");
        assert_eq!(read(SignedAs::Message, Some(&machine)), Err(SealError::TaskSignature));
    }
}
