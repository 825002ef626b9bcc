//! identity: being built.
