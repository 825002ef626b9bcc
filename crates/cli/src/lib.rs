//! cli: being built.
