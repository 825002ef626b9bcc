//! The promises of the crate: on both databases, and while PostgreSQL is down, starts again or is slow.

#![cfg(test)]

mod away;
mod batcher;
mod both;
mod deaf;
mod deliveries;
mod file;
mod hosts;
mod restarts;
