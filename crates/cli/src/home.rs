//! The directory of the command line: the account's records, and what only this program keeps with them.

use std::ops::Deref;
use std::path::PathBuf;

use ensemble_account::{Called, Computer, Notices};

use crate::failure::{Failure, Result};
use crate::says;

#[derive(Clone, Debug)]
pub(crate) struct Home(ensemble_account::Home);

impl Deref for Home {
    type Target = ensemble_account::Home;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Home {
    /// `chosen`, or the default directory of the system.
    pub(crate) fn find(chosen: Option<PathBuf>) -> Result<Self> {
        let path = chosen.or_else(usual).ok_or_else(|| {
            Failure::message("There is no home directory for the account key. Set ENSEMBLE_HOME to a directory.")
        })?;
        let computer = Computer::new(|| Called { device: device(), host: host() });
        Ok(Self(ensemble_account::Home::new(path, computer, Notices::to(says::notice))))
    }

    /// Where `ensemble up` keeps the server's data unless a directory is given: `$XDG_DATA_HOME/ensemble`, or `data` in this
    /// directory when it was chosen, on macOS, and where earlier versions have left it.
    #[cfg(feature = "up")]
    pub(crate) fn data(&self) -> PathBuf {
        let own = self.path().join("data");
        let usual =
            usual_data().filter(|data| usual().as_deref() == Some(self.path()) && (data.exists() || !own.exists()));
        usual.unwrap_or(own)
    }
}

/// `$XDG_CONFIG_HOME/ensemble` or `~/.config/ensemble`; on macOS `~/Library/Application Support/ensemble`.
fn usual() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if cfg!(target_os = "macos") {
        return home().map(|home| home.join("Library/Application Support/ensemble"));
    }
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    configured.or_else(|| home().map(|home| home.join(".config"))).map(|config| config.join("ensemble"))
}

/// `$XDG_DATA_HOME/ensemble` or `~/.local/share/ensemble`. macOS has one place for data and configuration.
pub(crate) fn usual_data() -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("ensemble"))
}

/// The default name of a device of the command line. The machine on the same computer has the host's name.
fn device() -> String {
    let set = |name: &str| std::env::var_os(name)?.into_string().ok().filter(|user| !user.is_empty());
    // Neither variable is set in a container or a unit of the system.
    let of_system = || nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()?.map(|user| user.name);
    let user = set("USER").or_else(|| set("LOGNAME")).or_else(of_system);
    let user = user.unwrap_or_else(|| nix::unistd::geteuid().to_string());
    format!("{user}@{}", host())
}

/// The name of this computer.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
