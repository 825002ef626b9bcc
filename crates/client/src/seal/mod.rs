//! What only people with the key can read: keys sealed to people with HPKE, contents sealed with AES-256-GCM.
//!
//! The formats, byte by byte, and what the server can still see are in docs/ENCRYPTION.md; the vectors in
//! `crates/client/vectors` hold this code and a browser's WebCrypto to the same bytes. Nothing here does I/O.

mod body;
mod content;
mod content_key;
mod encoding;
mod link;
mod ring;
mod wrap;

#[cfg(test)]
mod tests;

pub use body::MessageBody;
pub use content::{Purpose, open, open_json, seal, seal_json};
pub use content_key::{ContentKeyPair, ContentPublicKey, fingerprint};
pub use link::LinkSecret;
pub use ring::KeyRing;
pub use wrap::{Binding, open_ring, seal_ring};

/// Why something could not be sealed or opened. Says nothing about the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("it is not in a format that this version knows")]
    Format,
    #[error("it was sealed for somebody else, or with another key, or it was changed on the way")]
    Refused,
    #[error("it was sealed with key {0}, which you were not given")]
    UnknownEpoch(u32),
    #[error("the content key is not signed by the account it is said to belong to; do not share with this user")]
    Signature,
    #[error("this user has not set a content key yet, so nothing can be encrypted to them")]
    NoContentKey,
    #[error("the key has been changed too often to fit; no further change is possible")]
    TooManyKeys,
    #[error("the plaintext is too long")]
    TooLong,
}

/// The result of sealing and opening.
pub type Result<T, E = SealError> = std::result::Result<T, E>;
