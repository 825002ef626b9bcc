//! A typed client of the public interface: it signs in, retries what may be retried, and follows streams.
//!
//! Start with [`Client::builder`]. Every call of the interface is one method on [`Client`], in the file of its noun.
//! What travels encrypted is sealed and opened by [`seal`]; the rest of this crate never looks into it.

pub mod account_key;
pub mod credential;
pub mod error;
pub mod retry;
pub mod transport;

pub mod follow;
pub mod pages;
mod sse;
mod idempotency;
mod sign_in;

mod accounts;
mod leases;
mod machines;
mod output;
mod runs;
mod voice;

pub mod seal;

pub use account_key::AccountKey;
pub use credential::{Credential, Token};
pub use idempotency::idempotency_key;
pub use error::{Error, Result};
pub use output::OutputOf;
pub use retry::Retry;
pub use transport::{Client, ClientBuilder};
