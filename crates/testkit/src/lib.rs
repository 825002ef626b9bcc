//! What tests of services need: PostgreSQL of their own, a database for each test, services on free ports, tokens of every
//! kind, clients with roles. For `dev-dependencies` only.

pub mod database;
pub mod postgres;

pub use database::{Backend, TestDatabase, run};
