//! edge-proxy: the one door to everything.
pub mod domain;
