//! chassis: being built.
