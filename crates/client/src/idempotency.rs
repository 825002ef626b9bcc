//! Keys that let the service recognise a repeated request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngCore;

/// A new `Idempotency-Key`: 144 random bits.
pub fn idempotency_key() -> String {
    let mut bytes = [0; 18];
    rand::thread_rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}
