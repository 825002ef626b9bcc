//! Tests of the telemetry of the services: real programs, and a small collector that stores their spans.

mod collector;
mod stack;

pub use collector::{Collector, Span};
pub use stack::{SERVICES, Stack, User, program};
