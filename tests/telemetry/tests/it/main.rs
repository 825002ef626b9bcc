//! One trace runs from the edge to the database; and nobody waits for a collector.

#![cfg(test)]

mod asked;
mod away;
mod numbers;
mod traces;
mod variables;
