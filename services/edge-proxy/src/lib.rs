//! edge-proxy: the one door to everything.
pub mod domain;
pub mod guard;
pub mod upstream;
