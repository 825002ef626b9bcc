//! What a machine can do, as it says itself: sealed to the newest content key of its owner and signed by the machine.
//!
//! A machine does not have the key of its own record, which the owner's devices make. So it seals to the owner, as it does with the keys of
//! its sessions. The signature covers the version that the text gets, so that an older text that is shown again is recognized.

use ensemble_types::ids::MachineId;
use serde::{Deserialize, Serialize};

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::wrap::{open_for, seal_for};
use super::{Result, SealError};
use crate::AccountKey;
use crate::lists::is_signed;

const FIRST_LINE: &str = "ensemble-daemon-state-v2";
/// The longest body that counts, in bytes.
const LONGEST: usize = 16 << 10;

/// What the program on a machine can do. Words and members that are not known here are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonState {
    /// What can be asked of it, for example [`DaemonState::DEMO`].
    #[serde(default)]
    pub does: Vec<String>,
    /// The agents that were there when the program started.
    #[serde(default)]
    pub agents: Vec<InstalledAgent>,
}

/// An agent on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledAgent {
    /// What people type, and the provider on the wire.
    pub name: String,
    /// Where its program is.
    pub path: String,
}

impl DaemonState {
    /// It begins the session of a demo when a task asks for it.
    pub const DEMO: &'static str = "demo";

    pub fn can(&self, what: &str) -> bool {
        self.does.iter().any(|does| does == what)
    }

    /// Signs it for the version that it gets, and seals it to the owner's content key.
    ///
    /// # Errors
    /// [`SealError::TooLong`]: it has more than 16 KiB, so it would not count.
    pub fn seal(&self, to: &BoxPublicKey, of: (&MachineId, i64), machine: &AccountKey) -> Result<String> {
        let body = serde_json::to_string(self).map_err(|_| SealError::Format)?;
        if body.len() > LONGEST {
            return Err(SealError::TooLong);
        }
        let sig = machine.sign(&signed_text(of, &body));
        let signed = serde_json::to_vec(&Signed { body, sig }).map_err(|_| SealError::Format)?;
        seal_for(FIRST_LINE.as_bytes(), &signed, to, &associated_data(of))
    }

    /// Opens the output of [`Self::seal`] for the same machine and version, if the holder of this key has signed it.
    pub fn open(sealed: &str, with: &BoxKeyPair, of: (&MachineId, i64), machine: &str) -> Result<Self> {
        let opened = open_for(FIRST_LINE.as_bytes(), sealed, with, &associated_data(of))?;
        let Signed { body, sig } = serde_json::from_slice(&opened).map_err(|_| SealError::Format)?;
        if !is_signed(machine, &signed_text(of, &body), &sig) {
            return Err(SealError::Unsigned);
        }
        if body.len() > LONGEST {
            return Err(SealError::TooLong);
        }
        serde_json::from_str(&body).map_err(|_| SealError::Format)
    }
}

#[derive(Serialize, Deserialize)]
struct Signed {
    body: String,
    sig: String,
}

fn associated_data((machine, version): (&MachineId, i64)) -> String {
    format!("{FIRST_LINE}\n{machine}\n{version}")
}

fn signed_text((machine, version): (&MachineId, i64), body: &str) -> Vec<u8> {
    format!("{FIRST_LINE}\n{machine}\n{version}\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::encoding::{decode_array, encode};
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vector {
        account_seed: String,
        machine_seed: String,
        machine: MachineId,
        version: i64,
        state: DaemonState,
        sealed: String,
    }

    impl Vector {
        fn keys(&self) -> (BoxKeyPair, AccountKey) {
            let [account, machine] = [&self.account_seed, &self.machine_seed]
                .map(|seed| AccountKey::from_seed(&decode_array(seed).unwrap()));
            (BoxKeyPair::of(&account).unwrap(), machine)
        }

        fn generate() -> Self {
            let agents = vec![InstalledAgent { name: "claude".to_owned(), path: "/opt/naïve/claude".to_owned() }];
            let state = DaemonState { does: vec![DaemonState::DEMO.to_owned(), "fly".to_owned()], agents };
            let (account_seed, machine_seed) = (encode(&[1; 32]), encode(&[2; 32]));
            let machine = "laptop_1".parse().unwrap();
            let mut vector = Self { account_seed, machine_seed, machine, version: 3, state, sealed: String::new() };
            let (account, key) = vector.keys();
            vector.sealed = vector.state.seal(&account.public(), (&vector.machine, 3), &key).unwrap();
            vector
        }
    }

    #[test]
    fn a_state_of_an_earlier_version_is_understood() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/daemon-state.json");
        if std::env::var_os("UPDATE_VECTORS").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&Vector::generate()).unwrap() + "\n").unwrap();
        }
        let vector: Vector = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let (account, key) = vector.keys();
        let opened = DaemonState::open(&vector.sealed, &account, (&vector.machine, vector.version), &key.public_key());
        assert_eq!(opened, Ok(vector.state));
    }

    #[test]
    fn it_counts_for_its_machine_version_and_signer_only() {
        let vector = Vector::generate();
        let (account, key) = vector.keys();
        let (other, of) = (AccountKey::generate(), (&vector.machine, vector.version));
        let open = |with, of, signer: &AccountKey| DaemonState::open(&vector.sealed, with, of, &signer.public_key());
        assert_eq!(open(&account, of, &key), Ok(vector.state.clone()));
        assert_eq!(open(&account, of, &other), Err(SealError::Unsigned));
        assert_eq!(open(&account, (&vector.machine, 4), &key), Err(SealError::Refused));
        let laptop_2 = "laptop_2".parse().unwrap();
        assert_eq!(open(&account, (&laptop_2, 3), &key), Err(SealError::Refused));
        assert_eq!(open(&BoxKeyPair::of(&other).unwrap(), of, &key), Err(SealError::Refused));
        let long = DaemonState { does: vec!["x".repeat(LONGEST)], agents: Vec::new() };
        assert_eq!(long.seal(&account.public(), of, &key), Err(SealError::TooLong));
    }
}
