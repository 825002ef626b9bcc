//! Tasks in the clear that a device of their owner has signed, and what the owner says about them later. The server reads them, and cannot
//! change what a machine does.

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::runs::{Isolation, Permission, Provider, Signed, SignedBody, TaskSignature};
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::task::{PURPOSE, SignedTask};
use super::{Result, SealError};
use crate::account_key::AccountKey;

/// A task in the clear, as it was signed. A machine does nothing when it does not know a member: it could be a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearTask {
    /// As it was submitted: with its placeholders.
    pub prompt: String,
    pub provider: Provider,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Without it the task works in a directory of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Without it the machine's own configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    #[serde(default)]
    pub isolation: Isolation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// `base` is the key of another task of the run, and no git ref.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_is_task: bool,
    /// `null`: any machine of the owner.
    pub machine_id: Option<MachineId>,
    /// 16 random bytes, base64url. The machine does nothing else under the same one.
    pub nonce: String,
    /// The signer's clock.
    pub at: Timestamp,
    /// At most seven days after `at`.
    pub expires: Timestamp,
}

/// What the owner wants of a task that there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskOrder {
    pub action: TaskAction,
    pub task_id: TaskId,
    /// What the agent is told. Only of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The machine that has the agent's session, or the worktree.
    pub machine_id: Option<MachineId>,
    pub nonce: String,
    pub at: Timestamp,
    pub expires: Timestamp,
}

/// The kind of a [`TaskOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskAction {
    Message,
    Apply,
    Discard,
}

/// Signs a [`ClearTask`] or a [`TaskOrder`], as JSON, for its machine. `None`: for any machine of the owner.
pub fn sign_clear(body: &str, machine: Option<&MachineId>, signer: &AccountKey) -> Result<Signed> {
    let blob = |text: String| Blob::new(text).map_err(|_| SealError::Format);
    let sig = Blob::new(signer.sign(&signed_text(machine, body))).map_err(|_| SealError::Format)?;
    let signature = TaskSignature { key: blob(signer.public_key())?, sig };
    Ok(Signed { signature, signed_body: SignedBody::new(body).map_err(|_| SealError::Format)? })
}

/// Checks the signature of what was signed for this machine, or for any. Whether the signer may have it done is for the caller to say.
pub fn open_clear(signed: &Signed, machine: &MachineId) -> Result<SignedTask> {
    let Signed { signature: TaskSignature { key, sig }, signed_body } = signed;
    let is_for = |machine| ensemble_devices::is_signed(key, &signed_text(machine, signed_body), sig);
    if !is_for(Some(machine)) && !is_for(None) {
        return Err(SealError::TaskSignature);
    }
    Ok(SignedTask { body: signed_body.to_string(), key: key.to_string() })
}

/// The same text as of a sealed task. The machine is empty when there is none.
fn signed_text(machine: Option<&MachineId>, body: &str) -> Vec<u8> {
    format!("{PURPOSE}\n{}\n{body}", machine.map_or("", MachineId::as_str)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_for_one_machine_or_for_any_is_not_signed_for_another() {
        let (device, other, machine) = (AccountKey::generate(), AccountKey::generate(), MachineId::generate());
        let good = sign_clear("{}", Some(&machine), &device).unwrap();
        assert_eq!(open_clear(&good, &machine), Ok(SignedTask { body: "{}".to_owned(), key: device.public_key() }));
        assert_eq!(open_clear(&good, &MachineId::generate()), Err(SealError::TaskSignature));
        let any = sign_clear("{}", None, &device).unwrap();
        assert!(open_clear(&any, &machine).is_ok() && open_clear(&any, &MachineId::generate()).is_ok());
        let changed = Signed { signed_body: SignedBody::new("{ }").unwrap(), ..good.clone() };
        assert_eq!(open_clear(&changed, &machine), Err(SealError::TaskSignature));
        let of_other = sign_clear("{}", Some(&machine), &other).unwrap().signature;
        let mixed = TaskSignature { key: of_other.key, ..good.signature.clone() };
        assert_eq!(open_clear(&Signed { signature: mixed, ..good }, &machine), Err(SealError::TaskSignature));
    }

    #[test]
    fn nothing_that_is_signed_reads_as_something_else() {
        let order = r#"{"action":"apply","taskId":"0193a1b2-0000-7000-8000-000000000001","machineId":null,"nonce":"n",
            "at":"2026-01-01T00:00:00Z","expires":"2026-01-02T00:00:00Z"}"#;
        let task = r#"{"prompt":"p","provider":"claude","isolation":"none","machineId":null,"nonce":"n","at":"2026-01-01T00:00:00Z",
            "expires":"2026-01-02T00:00:00Z"}"#;
        assert!(serde_json::from_str::<TaskOrder>(order).is_ok() && serde_json::from_str::<ClearTask>(order).is_err());
        assert!(serde_json::from_str::<ClearTask>(task).is_ok() && serde_json::from_str::<TaskOrder>(task).is_err());
        assert!(serde_json::from_str::<super::super::SessionTask>(task).is_err());
        let more = task.replace("\"isolation\"", "\"sandbox\":true,\"isolation\"");
        assert!(serde_json::from_str::<ClearTask>(&more).is_err());
    }
}
