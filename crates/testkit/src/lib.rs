//! testkit: being built.
