//! What a key signs before a list may have it, so that no account lists a key that it does not hold.

use ensemble_types::devices::ListedDevice;

use super::bytes::is_signed;

/// The text that the key of an entry signs: `ensemble-device-v1`, the account, both keys and the role, each in a line. It names
/// the account, so another one cannot use the signature.
pub fn proof_text(account: &str, device: &ListedDevice) -> Vec<u8> {
    let ListedDevice { key, box_key, role, .. } = device;
    format!("ensemble-device-v1\n{account}\n{key}\n{box_key}\n{}", role.as_str()).into_bytes()
}

/// Whether the holder of the entry's key has signed that the account may list it.
pub fn is_proof(account: &str, device: &ListedDevice, signature: &str) -> bool {
    is_signed(&device.key, &proof_text(account, device), signature)
}
