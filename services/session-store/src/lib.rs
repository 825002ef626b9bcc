//! session-store: being built.
