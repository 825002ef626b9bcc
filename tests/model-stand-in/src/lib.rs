//! A model that does as the prompt tells it, behind the wire formats of Anthropic, OpenAI and Google.
//!
//! The runner's tests drive the real coding agents with it. It knows just enough of each format for them to be
//! satisfied, and keeps what it heard, so that a test can compare the prompt that arrived with the one that was sent.

mod answer;
mod apis;
mod directive;
mod server;

pub use apis::Api;
pub use directive::Directive;
pub use server::{Heard, StandIn};
