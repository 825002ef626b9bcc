//! Finds a program on the search path.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
