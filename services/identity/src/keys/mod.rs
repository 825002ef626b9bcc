//! The signing keys: sealed in the database, opened in memory, with their public halves published.

mod claims;
mod ring;
mod vapid;
mod vault;

pub(crate) use ring::{KeyRing, RingError};
pub(crate) use vapid::Vapid;
pub(crate) use vault::{CannotOpen, Vault};
