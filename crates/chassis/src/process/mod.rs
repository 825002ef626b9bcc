//! The stages of a process: configure, bind, build, serve, drain, stop.

mod commands;
mod drain;
mod internal;
mod pipe;
mod serve;
mod settings;
mod sockets;
mod stop;
pub mod telemetry;
mod tls;
pub(crate) mod usage;

/// glibc's allocator keeps what a burst of requests needed: 60 s after 1,000 unread streams and 300 unfinished bodies the
/// edge still held 117 MiB and the session store 85. With this one they hold 21 and 50, because it also serves the C libraries (libpq, SQLite). How soon it gives pages back stands
/// in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub use commands::run;
pub use drain::Drain;
pub use serve::{Listeners, start};
pub use settings::ServerSettings;
pub use sockets::{prepare_connection, raise_file_limit};
pub use stop::Running;
pub use tls::{TlsFront, TlsLimits, TlsSettings};

/// Installs what a process needs once: the TLS provider and the token provider. Safe to call again.
pub fn install_providers() {
    drop(rustls::crypto::ring::default_provider().install_default());
    crate::auth::install_provider();
}
