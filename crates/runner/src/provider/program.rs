//! Finds a provider's program, or the reason why it cannot be offered.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ensemble_types::runs::Provider;

/// A provider on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub provider: Provider,
    /// The program that tasks may use, or the reason why there is none.
    pub program: Result<PathBuf, NotOffered>,
    pub version: Option<String>,
    /// `None` when the program does not say it.
    pub signed_in: Option<bool>,
}

/// Why a provider is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOffered {
    /// `PROVIDER_NOT_AVAILABLE` or `PROVIDER_NOT_SIGNED_IN`.
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

impl NotOffered {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self { code: "PROVIDER_NOT_AVAILABLE", reason: reason.into() }
    }

    pub(crate) fn not_signed_in(advice: &str) -> Self {
        Self { code: "PROVIDER_NOT_SIGNED_IN", reason: format!("nobody is signed in: {advice}") }
    }
}

/// Finds a program as a shell does: a name on the search path, or a path.
pub fn find(name: &Path, search_path: &str) -> Result<PathBuf, String> {
    if name.components().count() > 1 || name.is_absolute() {
        return usable(name).map(|()| name.to_owned());
    }
    let candidates = std::env::split_paths(OsStr::new(search_path)).map(|folder| folder.join(name));
    match candidates.into_iter().find(|path| path.is_absolute() && usable(path).is_ok()) {
        Some(path) => Ok(path),
        None => Err(format!("the program {} is not on the search path", name.display())),
    }
}

fn usable(path: &Path) -> Result<(), String> {
    let found = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !found.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(format!("{} is not executable", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_a_program_is_not_offered() {
        let folder = tempfile::tempdir().unwrap();
        let search = folder.path().to_str().unwrap();
        let program = folder.path().join("tool");
        assert_eq!(find(Path::new("tool"), search), Err("the program tool is not on the search path".to_owned()));
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(find(&program, search).unwrap_err().ends_with("is not executable"));
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(find(Path::new("tool"), search), Ok(program));
        assert!(find(folder.path(), search).unwrap_err().ends_with("is not a file"));
    }
}
