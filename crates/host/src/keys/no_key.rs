//! Why a session has no key under which its machine can write, and what people see of it.

use ensemble_client::Error;
use ensemble_protocol::seal::SealError;
use ensemble_types::sessions::CannotWrite;

/// Why there is no newer key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoKey {
    #[error(transparent)]
    Client(#[from] Error),
    #[error("the owner's programs have not sealed the session's new key to this machine yet")]
    NotGiven,
    #[error("the session's new key was not made by a device of its owner")]
    Stranger,
    #[error("the session's new key does not open")]
    Sealed(#[from] SealError),
    #[error("the owner's device list cannot be read: {0}")]
    List(#[source] Error),
    #[error("a device of the owner or a share was removed, and the session has no new key since")]
    Old,
    #[error("a share was removed, and the owner's program has a moment to make the new key")]
    Soon,
}

impl NoKey {
    /// What people see of it. `None`: it passes, or is over with the session.
    pub(super) fn shown(&self) -> Option<CannotWrite> {
        match self {
            Self::Soon => None,
            Self::Client(error) | Self::List(error) if error.is_passing() || error.is_not_found() => None,
            Self::Client(_) | Self::Old => Some(CannotWrite::KeyRefused),
            Self::NotGiven | Self::Sealed(_) => Some(CannotWrite::KeyNotGiven),
            Self::Stranger => Some(CannotWrite::KeyOfStranger),
            Self::List(_) => Some(CannotWrite::ListUnread),
        }
    }
}
