//! tidy: being built.
