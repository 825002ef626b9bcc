//! A model stand-in that follows directives in the prompt, with the wire formats of Anthropic, OpenAI and Google.
//!
//! The runner's tests use it to drive the real coding agents. It implements just enough of each format for them, and
//! records the requests, so that a test can compare the prompt that arrived with the one that was sent.

mod answer;
mod apis;
mod directive;
mod server;
mod stored;

pub use apis::Api;
pub use directive::Directive;
pub use server::{ModelRequest, StandIn};
pub use stored::{claude_has_sessions, claude_has_stored, opencode_has_its_packages};
