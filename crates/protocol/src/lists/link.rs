//! What a new device signs when it asks to be linked, and what both devices compute from the secret of the link.

use ensemble_types::devices::DeviceLinkRequest;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::bytes::{decode, encode, is_signed, is_small_order};

/// The text `T` of a request: the server, the link, the keys, the kind, the digest of the name, and for a machine the device on its
/// computer.
#[derive(Clone, Debug)]
pub struct LinkText(String);

impl LinkText {
    pub fn of(origin: &str, link: &str, request: &DeviceLinkRequest) -> Self {
        let DeviceLinkRequest { public_key, box_key, name, kind, by, .. } = request;
        let name = encode(&Sha256::digest(name.as_bytes()));
        let (key, box_key, kind) = (&**public_key, &**box_key, kind.as_str());
        let by = by.as_ref().map_or("", |by| &**by);
        Self(format!("ensemble-link-v2\n{origin}\n{link}\n{key}\n{box_key}\n{kind}\n{name}\n{by}"))
    }

    /// What the new device signs.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The `mac` of the request, with the secret of the link.
    pub fn mac(&self, secret: &[u8; 32]) -> Option<String> {
        code(secret, "ensemble-link-request-v1", self.as_bytes()).map(|code| encode(&code))
    }

    /// Whether the `mac` was made with the secret of the link. Takes the same time for every wrong one.
    pub fn is_mac(&self, secret: &[u8; 32], mac: &str) -> bool {
        is_code(secret, "ensemble-link-request-v1", self.as_bytes(), mac)
    }

    /// The six digits that the new device shows and a person types at the first one.
    pub fn digits(&self, secret: &[u8; 32]) -> Option<String> {
        let [a, b, c, d, ..] = code(secret, "ensemble-link-digits-v1", self.as_bytes())?;
        Some(format!("{:06}", u32::from_be_bytes([a, b, c, d]) % 1_000_000))
    }
}

/// HMAC-SHA256 of the text, with a key that is derived from the secret for this purpose.
pub(super) fn code(secret: &[u8; 32], purpose: &str, text: &[u8]) -> Option<[u8; 32]> {
    hmac(secret, purpose).map(|code| code.chain_update(text).finalize().into_bytes().into())
}

/// Whether this is [`code`]. Takes the same time for every wrong one.
pub(super) fn is_code(secret: &[u8; 32], purpose: &str, text: &[u8], code: &str) -> bool {
    match (hmac(secret, purpose), decode::<32>(code)) {
        (Some(hmac), Some(code)) => hmac.chain_update(text).verify_slice(&code).is_ok(),
        _ => false,
    }
}

fn hmac(secret: &[u8; 32], purpose: &str) -> Option<Hmac<Sha256>> {
    let mut key = [0; 32];
    Hkdf::<Sha256>::new(None, secret).expand(purpose.as_bytes(), &mut key).ok()?;
    Hmac::new_from_slice(&key).ok()
}

/// Whether who asks holds the key that is to be listed: the request's signature is over its text at one of these origins.
pub fn is_possession<'o>(origins: impl IntoIterator<Item = &'o str>, link: &str, request: &DeviceLinkRequest) -> bool {
    let has_box = decode::<32>(&request.box_key).is_some_and(|key| !is_small_order(&key));
    let is_good = |origin| {
        let text = LinkText::of(origin, link, request);
        is_signed(&request.public_key, text.as_bytes(), &request.signature)
    };
    has_box && origins.into_iter().any(is_good)
}
