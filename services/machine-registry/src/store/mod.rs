//! Queries and nothing else: one file per table. Functions take the connection of a transaction that an operation began.

pub(crate) mod deletions;
pub(crate) mod machines;
mod schema;
