//! What a person's device can do with an account: open it, read, follow and prompt sessions, give people keys, take them back.
//!
//! Nothing here prints, reads the environment or starts a program. What a person should know comes as a [`Notice`], and failures as an
//! [`Error`]. Everything that the server says is checked against what devices of the account have signed.

mod account;
pub mod confirmations;
pub mod devices;
mod error;
mod home;
pub mod kept_lists;
pub mod known_sessions;
pub mod live;
pub mod machine_key;
pub mod machines;
pub mod names;
mod notice;
pub mod pins;
pub mod removal;
pub mod runs;
pub mod seen_titles;
pub mod sessions;
pub mod settings;
pub mod sharing;
mod text;

pub use account::{Account, with_token};
pub use error::{Error, KEY_FORM, Result};
pub use home::{Computer, Home, Lock, Owner};
pub use notice::{Notice, Notices};
pub use text::{inline, short};
