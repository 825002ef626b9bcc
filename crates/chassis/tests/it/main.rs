//! How every service behaves at its listeners.

#![cfg(test)]

mod bodies;
mod connections;
mod members;
mod service;
mod tls;
