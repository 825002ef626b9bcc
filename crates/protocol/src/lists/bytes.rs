//! Keys, digests and signatures as text: base64url without padding (RFC 4648, section 5), in the one canonical form.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, VerifyingKey};

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Exactly `N` bytes. One key has one text, so texts can be compared.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// An Ed25519 public key that is not of small order.
pub(crate) fn signing_key(text: &str) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(&decode(text)?).ok().filter(|key| !key.is_weak())
}

/// Whether this is a strict Ed25519 signature (RFC 8032, section 5.1.7) over the text.
pub fn is_signed(signer: &str, text: &[u8], signature: &str) -> bool {
    let (Some(key), Some(signature)) = (signing_key(signer), decode(signature)) else { return false };
    key.verify_strict(text, &Signature::from_bytes(&signature)).is_ok()
}

/// Whether an X25519 public key is one of the few with which every exchange has the same result (RFC 7748, section 6.1).
pub(crate) fn is_small_order(key: &[u8; 32]) -> bool {
    // The points of small order on curve25519 and their forms that are not reduced. The highest bit is ignored.
    const POINTS: [[u8; 32]; 7] = [
        [0; 32],
        first(1),
        [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
            0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ],
        [
            0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44,
            0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
        ],
        near_prime(0xec),
        near_prime(0xed),
        near_prime(0xee),
    ];
    let mut reduced = *key;
    reduced[31] &= 0x7f;
    POINTS.contains(&reduced)
}

const fn first(byte: u8) -> [u8; 32] {
    let mut point = [0; 32];
    point[0] = byte;
    point
}

/// 2^255 − 19 ± 1 in little-endian order, by its first byte.
const fn near_prime(byte: u8) -> [u8; 32] {
    let mut point = [0xff; 32];
    point[0] = byte;
    point[31] = 0x7f;
    point
}
