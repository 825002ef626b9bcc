//! The rules of device lists: which list is good, and which one may follow another. The service and the clients use the same
//! code, and a client trusts only what it has checked itself.
//!
//! docs/ENCRYPTION.md describes the format. No I/O happens here.

mod bytes;
mod form;
mod invite;
mod link;
mod list;
mod name;
mod proof;
mod seen;
#[cfg(test)]
mod tests;

pub use bytes::{decode, encode, is_signed};
pub use form::{MOST_NAME_BYTES, is_machine_name, is_name, nearest as nearest_name};
pub use invite::{ClaimText, is_claim};
pub use link::{LinkText, is_possession};
pub use list::{Digest, List, ListError, MOST_DEVICES, MOST_VERSIONS, Removal, signed_text};
pub use name::{NameError, Names, commitment};
pub use proof::{is_proof, proof_text};
pub use seen::seen_text;
