//! store-kit: being built.
