//! Rules about accounts and credentials. No I/O; the time is an argument.

mod account;
mod encoding;
mod origin;
mod schedule;
mod sign_in;
mod token;

pub(crate) use account::{Account, AccountChange, BadAccountChange, ContentKey, Registration};
pub(crate) use encoding::encode;
pub(crate) use origin::Origin;
pub(crate) use schedule::{Plan, Published, Schedule};
pub(crate) use sign_in::{MalformedProof, Proof};
pub(crate) use token::{BadLifetime, MachineToken, TokenLifetimes};
