//! End-to-end encryption: keys sealed to people with HPKE, contents encrypted with AES-256-GCM.
//!
//! docs/ENCRYPTION.md describes the formats byte by byte and what the server can still see. The vectors in
//! `crates/protocol/vectors` check that this code and a browser's WebCrypto produce the same bytes. No I/O happens here.

mod body;
mod box_key;
mod content;
mod content_ring;
mod daemon_state;
mod encoding;
mod link;
pub mod look;
mod recovery;
mod ring;
mod said;
mod secret_address;
mod share;
mod signed_task;
mod task;
mod wrap;

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod invite_tests;
#[cfg(test)]
mod ring_tests;
#[cfg(test)]
mod said_vectors;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod tests;

pub use body::MessageBody;
pub use box_key::{BoxKeyPair, BoxPublicKey, fingerprint};
pub use content::{Purpose, epoch_of, open, open_json, seal, seal_json};
pub use content_ring::ContentRing;
pub use daemon_state::{DaemonState, InstalledAgent};
pub use link::LinkSecret;
pub use recovery::{BadWords, RecoveryWords};
pub use ring::KeyRing;
pub use said::{
    LONGEST_METADATA, Metadata, OfMachine, SignedMetadata, open_agent_state, open_earlier_metadata, open_metadata,
    seal_agent_state, seal_metadata,
};
pub use secret_address::{InviteAnswer, InviteCode, Leads, LinkCode, SecretAddress, ToInvite, ToLink, new_secret};
pub use share::{Admin, Grant, SharedRing};
pub use signed_task::{ClearTask, SignedAs, SignedBase, TaskAction, TaskOrder, open_clear, read_clear, sign_clear};
pub use task::{SessionTask, SignedTask, open_task, seal_task};
pub use wrap::{Binding, SignedRing, open_client_state, open_host_ring, open_ring, seal_client_state, seal_ring};

/// Why something could not be sealed or opened. The text reveals nothing about the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("the format is not known to this version")]
    Format,
    #[error("it was sealed for another user or with another key, or it was changed on the way")]
    Refused,
    #[error("it was sealed with key {0}, which you do not have")]
    UnknownEpoch(u32),
    #[error("the content key is not signed by this user's account key; do not share with this user")]
    Signature,
    #[error("this user has not set a content key yet, so nothing can be encrypted to them")]
    NoContentKey,
    #[error("the key has been changed too often; no further change is possible")]
    TooManyKeys,
    #[error("it is not signed by who made it")]
    RingSignature,
    #[error("it is not signed for this version")]
    Unsigned,
    #[error("the task is not signed by the key that it names")]
    TaskSignature,
    #[error("the look is not signed by the key that it names")]
    LookSignature,
    #[error("the server gave the content keys of another device list")]
    OtherContentRing,
    #[error("the plaintext is too long")]
    TooLong,
}

/// The result of sealing and opening.
pub type Result<T, E = SealError> = std::result::Result<T, E>;
