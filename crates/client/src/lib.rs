//! A typed client of the public interface: it signs in, retries where that is safe, and follows streams.
//!
//! Start with [`Client::builder`]. Every call of the interface is one method of [`Client`], in the file of its noun.
//! Contents pass through unchanged: `ensemble_protocol::seal` encrypts and decrypts them.

mod attempts;
mod call;
mod changes;
mod clock;
mod error;
mod no_connection;
mod quota;
mod retry;
mod transport;

mod credential;
mod idempotency;
mod sign_in;

pub mod follow;
mod pages;
mod poll;
pub mod sse;

mod accounts;
pub mod devices;
mod files;
mod hints;
mod invites;
mod leases;
mod links;
mod looks;
mod machines;
mod output;
mod refs;
mod runs;
mod server;
mod sessions;
mod shares;
mod voice;

pub use clock::Clock;
pub use credential::{Credential, Token};
pub use devices::Known;
pub use error::{Error, Result};
pub use files::Sent;
pub use hints::AccountNews;
pub use idempotency::idempotency_key;
pub use leases::HeldLease;
pub use no_connection::NoConnection;
pub use output::OutputOf;
pub use poll::Polls;
pub use retry::Retry;
pub use server::Version;
pub use sessions::{SessionEvent, SessionFilter, Window};
pub use transport::{Client, ClientBuilder};
pub use voice::VoiceEvent;
