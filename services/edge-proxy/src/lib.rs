//! edge-proxy: being built.
