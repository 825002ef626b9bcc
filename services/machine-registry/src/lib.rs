//! machine-registry: being built.
