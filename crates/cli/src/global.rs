//! The options that all commands share.

use std::path::PathBuf;

use clap::Args;

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The server's address [default: the first that you logged in to, or that of `ensemble config server`, else that of
    /// `ensemble up` on this machine]
    #[arg(long, global = true, env = "ENSEMBLE_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Print JSON for programs, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The directory of the account key and the settings
    #[arg(long, global = true, env = "ENSEMBLE_HOME", value_name = "DIR", hide = true)]
    pub(crate) home: Option<PathBuf>,
}
