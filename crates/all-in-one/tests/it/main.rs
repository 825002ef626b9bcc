//! All services in one process, and their databases.

#![cfg(test)]

mod members;
mod migrate;
mod stack;
