//! types: being built.
