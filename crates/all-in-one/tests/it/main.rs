//! All services in one process, and their databases.

#![cfg(test)]

mod migrate;
mod stack;
