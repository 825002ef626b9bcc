//! Stories told with the real `ensemble`: what people type, what they see, how it ends.
#![cfg(test)]

mod alone;
mod ensemble;
#[cfg(feature = "up")]
mod runs;
#[cfg(feature = "up")]
mod sessions;
