//! What the services tell about themselves, read from outside: real programs, and a small collector that keeps what they
//! send.

mod city;
mod collector;

pub use city::{City, Person, SERVICES, program};
pub use collector::{Collector, Span};
