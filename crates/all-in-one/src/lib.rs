//! all-in-one: being built.
