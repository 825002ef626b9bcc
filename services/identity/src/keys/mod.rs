//! The signing keys: sealed in the database, opened in memory, their public halves told to whoever verifies.

mod claims;
mod ring;
mod vault;

pub(crate) use ring::{KeyRing, RingError};
pub(crate) use vault::Vault;
