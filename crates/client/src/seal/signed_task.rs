//! Tasks in the clear that a device of their owner has signed, and what the owner says about them later. The server reads them, and cannot
//! change what a machine does.

use ensemble_types::ids::MachineId;
pub use ensemble_types::signatures::{ClearTask, TaskAction, TaskOrder};
use ensemble_types::signatures::{Signed, SignedBody, TaskSignature};
use ensemble_types::text::Blob;

use super::task::{PURPOSE, SignedTask};
use super::{Result, SealError};
use crate::account_key::AccountKey;

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
