//! runner: being built.
