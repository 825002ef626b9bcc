//! The stages of a process: configure, bind, build, serve, drain, stop.

mod commands;
mod drain;
mod internal;
mod serve;
mod settings;
mod stop;
pub mod telemetry;

pub use commands::run;
pub use drain::Drain;
pub use serve::{Listeners, start};
pub use settings::ServerSettings;
pub use stop::Running;

/// Installs what a process needs once: the TLS provider and the token provider. Safe to call again.
pub fn install_providers() {
    drop(rustls::crypto::ring::default_provider().install_default());
    crate::auth::install_provider();
}
