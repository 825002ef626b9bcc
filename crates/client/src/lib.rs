//! client: being built.
