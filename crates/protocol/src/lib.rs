//! What devices and machines sign and seal, and how it is checked: device lists, the transcript of a session, sealed contents.
//!
//! docs/ENCRYPTION.md and docs/TRANSCRIPT.md define the formats. `vectors/` holds them, for this crate, the TypeScript client
//! and a browser's WebCrypto. No I/O happens here, and time is passed in.

mod account_key;
mod hidden;
pub mod lists;
#[cfg(feature = "seal")]
pub mod seal;
#[cfg(feature = "transcript")]
pub mod transcript;

pub use account_key::AccountKey;
