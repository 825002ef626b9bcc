//! e2e: being built.
