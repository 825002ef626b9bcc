//! What a machine is to do, sealed for it and signed by a device of its owner. The server passes it on and reads nothing of it.

use ensemble_types::ids::{MachineId, RunId, SessionId, TaskId, UserId};
use ensemble_types::runs::{Permission, Provider, TaskSession};
use ensemble_types::time::Timestamp;
use rand::RngCore;
use serde::{Deserialize, Serialize};

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::encoding::encode;
use super::wrap::{open_for, seal_for};
use super::{Result, SealError};
use crate::AccountKey;

/// The first line of what is signed, and what it is sealed as.
const PURPOSE: &str = "ensemble-task-sealed-v2";

/// A task that begins a live session, or is its first turn. A machine does nothing when it does not know a member: it could be a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionTask {
    pub run_id: RunId,
    pub task_id: TaskId,
    pub session: TaskSession,
    /// What the agent is to do. Only of a task that is the first turn of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The id of the session, chosen by who signs: so a server can neither name another session as this one, nor have it begun twice.
    pub session_id: SessionId,
    pub provider: Provider,
    /// An absolute path on the machine.
    pub working_directory: String,
    /// What the agent may do without asking.
    pub mode: Permission,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the session has cost so much, in US dollars, its people are asked before another turn begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// 16 random bytes, base64url. The machine does nothing else under the same one.
    pub nonce: String,
    /// The signer's clock.
    pub at: Timestamp,
    /// At most seven days after `at`.
    pub expires: Timestamp,
}

impl SessionTask {
    /// A new nonce.
    pub fn nonce() -> String {
        let mut bytes = [0; 16];
        rand::rngs::OsRng.fill_bytes(&mut bytes);
        encode(&bytes)
    }
}

/// A task as it was signed. Whether the signer may have it done is for the caller to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTask {
    /// JSON.
    pub body: String,
    /// The signer's public key.
    pub key: String,
}

#[derive(Serialize, Deserialize)]
struct Opened {
    body: String,
    key: String,
    sig: String,
}

/// `base64url(version (1) | encapsulated key (32) | sealed {"body", "key", "sig"} and tag)`, to the machine's box key from the owner's
/// checked device list.
pub fn seal_task(
    body: &str,
    to: &BoxPublicKey,
    (owner, machine): (UserId, &MachineId),
    signer: &AccountKey,
) -> Result<String> {
    let sig = signer.sign(&signed_text(machine, body));
    let opened = Opened { body: body.to_owned(), key: signer.public_key(), sig };
    let text = serde_json::to_vec(&opened).map_err(|_| SealError::Format)?;
    seal_for(PURPOSE.as_bytes(), &text, to, &associated_data(owner, machine))
}

/// Opens the output of [`seal_task`] for the same owner and machine, and checks its signature.
pub fn open_task(sealed: &str, with: &BoxKeyPair, (owner, machine): (UserId, &MachineId)) -> Result<SignedTask> {
    let text = open_for(PURPOSE.as_bytes(), sealed, with, &associated_data(owner, machine))?;
    let Opened { body, key, sig } = serde_json::from_slice(&text).map_err(|_| SealError::Format)?;
    if !crate::lists::is_signed(&key, &signed_text(machine, &body), &sig) {
        return Err(SealError::TaskSignature);
    }
    Ok(SignedTask { body, key })
}

fn associated_data(owner: UserId, machine: &MachineId) -> String {
    format!("{PURPOSE}\n{owner}\n{machine}")
}

fn signed_text(machine: &MachineId, body: &str) -> Vec<u8> {
    format!("{PURPOSE}\n{machine}\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_opens_for_its_machine_and_owner_only() {
        let (owner, machine) = (UserId::generate(), MachineId::generate());
        let (device, runner) = (AccountKey::generate(), AccountKey::generate());
        let boxed = BoxKeyPair::of_device(&runner).unwrap();
        let sealed = seal_task("{}", &boxed.public(), (owner, &machine), &device).unwrap();
        let opened = open_task(&sealed, &boxed, (owner, &machine)).unwrap();
        assert_eq!(opened, SignedTask { body: "{}".to_owned(), key: device.public_key() });
        let other = MachineId::generate();
        for (owner, machine) in [(UserId::generate(), &machine), (owner, &other)] {
            assert_eq!(open_task(&sealed, &boxed, (owner, machine)), Err(SealError::Refused));
        }
        let elsewhere = BoxKeyPair::of_device(&device).unwrap();
        assert_eq!(open_task(&sealed, &elsewhere, (owner, &machine)), Err(SealError::Refused));
    }

    #[test]
    fn what_is_signed_for_one_machine_is_not_signed_for_another() {
        let (owner, machine, other) = (UserId::generate(), MachineId::generate(), MachineId::generate());
        let (device, runner) = (AccountKey::generate(), AccountKey::generate());
        let boxed = BoxKeyPair::of_device(&runner).unwrap();
        let seal = |key: &AccountKey, sig: String, body: &str| {
            let opened = Opened { body: body.to_owned(), key: key.public_key(), sig };
            let text = serde_json::to_vec(&opened).unwrap();
            seal_for(PURPOSE.as_bytes(), &text, &boxed.public(), &associated_data(owner, &machine)).unwrap()
        };
        let open = |sealed: String| open_task(&sealed, &boxed, (owner, &machine)).map(|opened| opened.body);
        let good = device.sign(&signed_text(&machine, "b"));
        assert_eq!(open(seal(&device, good.clone(), "b")), Ok("b".to_owned()));
        assert_eq!(open(seal(&device, good.clone(), "c")), Err(SealError::TaskSignature), "another body");
        assert_eq!(open(seal(&runner, good, "b")), Err(SealError::TaskSignature), "another key");
        let elsewhere = device.sign(&signed_text(&other, "b"));
        assert_eq!(open(seal(&device, elsewhere, "b")), Err(SealError::TaskSignature), "another machine");
    }

    #[test]
    fn a_member_that_is_not_known_is_not_left_out() {
        let text = r#"{"runId":"0193a1b2-0000-7000-8000-000000000002","taskId":"0193a1b2-0000-7000-8000-000000000003","session":"start","sessionId":"0193a1b2-0000-7000-8000-000000000001","provider":"claude","workingDirectory":"/w",
            "mode":"ask","nonce":"n","at":"2026-01-01T00:00:00Z","expires":"2026-01-02T00:00:00Z""#;
        assert!(serde_json::from_str::<SessionTask>(&format!("{text}}}")).is_ok());
        assert!(serde_json::from_str::<SessionTask>(&format!("{text},\"sandbox\":true}}")).is_err());
    }
}
