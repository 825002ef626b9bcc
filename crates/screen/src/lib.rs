//! The terminal screen of a live agent session: draws the transcript, and turns keys into what the person wants.
//!
//! It has no network and knows nothing of the server. The caller feeds a [`ensemble_protocol::transcript::view::View`], draws after
//! each change and each event, and carries out each [`Action`]. [`lines`] is what commands print without a screen, and [`Keys`] is what a
//! person presses meanwhile.

mod about;
mod action;
mod calling;
mod cards;
mod clean;
mod commands;
mod composer;
mod diff;
mod help;
mod keys;
mod last;
pub mod lines;
mod markdown;
mod paint;
mod plan;
mod pressed;
mod printed;
mod rule;
mod screen;
mod status;
mod table;
mod talk;
mod terminal;
#[cfg(test)]
mod tests;
mod transcript;
mod words;
mod wrap;

pub use about::{About, Connection, Level, Look, Me, below};
pub use action::Action;
pub use calling::Call;
pub use crossterm::event::{Event, EventStream};
pub use pressed::Keys;
pub use printed::Printed;
pub use screen::Screen;
pub use talk::{Held, Talk, TalkAction, Talking, Words};
pub use terminal::Terminal;
pub use words::control;
