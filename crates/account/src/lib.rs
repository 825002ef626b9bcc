//! What a person's device can do with an account: open it, read, follow and prompt sessions, give people keys, take them back.
//!
//! Nothing here prints, reads the environment or starts a program. What a person should know comes as a [`Notice`], and failures as an
//! [`Error`]. Everything that the server says is checked against what devices of the account have signed.

mod account;
mod attachments;
pub mod changes;
mod computer;
pub mod confirmations;
pub mod devices;
pub mod drafts;
mod error;
#[cfg(test)]
mod fixtures;
mod home;
pub mod invites;
pub mod kept_lists;
pub mod known_sessions;
mod last_used;
pub mod links;
pub mod live;
mod machine_key;
pub mod machines;
pub mod names;
mod notice;
mod opening;
pub mod pins;
pub mod removal;
pub mod runs;
pub mod seen_titles;
pub mod sessions;
pub mod settings;
pub mod sharing;
mod store;
pub mod tasks;
pub mod this_machine;

pub use account::{Account, fingerprint, with_token};
pub use attachments::attachments;
pub use computer::{Called, Computer};
pub use error::{Error, KEY_FORM, Result};
pub use home::{Home, Owner};
pub use notice::{Notice, Notices};
pub use opening::{Begun, Wanted, check_unused};
pub use store::{Change, Edit, FileStore, Lock, MemoryStore, Store};
