//! The transcript of a live agent session: what its messages say, who signed them, who may command, and what a screen shows.
//!
//! docs/TRANSCRIPT.md defines the format. No I/O happens here, and time is passed in.

pub mod body;
pub mod bounds;
mod choices;
mod envelope;
mod frame;
pub mod plain;
pub mod rules;
pub mod view;
mod visible;
pub mod words;

pub use body::{BadBody, Content, Message};
pub use choices::{Choices, option_digits};
pub use envelope::{Envelope, NotSigned, account_digest, digest, signed_text};
pub use frame::{Frame, frame};
pub use visible::{detail, visible};
