//! A person's computer around the commands: the programs that run on it for Ensemble, and who reaches a server on it.
//!
//! It starts programs, prints nothing, and reads no environment of its own: the caller passes the variables.

pub mod browser;
pub mod hosting;
pub mod listener;
pub mod livekit;
pub mod place;
pub mod reach;
pub mod service;
pub mod tailscale;
pub mod tunnel;

mod error;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::error::{Error, Result};

/// The variables of the caller.
pub type Environment = BTreeMap<String, String>;

/// The port of this computer to which a proxy leads in what people are advised to type: there the visitors that it carries have limits of
/// their own.
pub const PROXY_PORT: u16 = 8088;

/// Where a program is on the search path, or why it is not there, as a part of a sentence.
pub fn program(name: &str, environment: &Environment) -> Result<PathBuf, String> {
    ensemble_process::find(Path::new(name), environment.get("PATH").map_or("", String::as_str), None)
}
