//! What the services tell about themselves, read from outside: real programs, and a small collector that keeps what they
//! send.

mod collector;
mod city;

pub use city::{City, Person};
pub use collector::{Collector, Span};
