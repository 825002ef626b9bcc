//! Finds a program on the search path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds a program: a path, or a name in the absolute entries of the search path. A name whose program is below the directory `outside` is
/// not found there.
pub fn find(name: &Path, search_path: &str, outside: Option<&Path>) -> Result<PathBuf, String> {
    if name.components().count() > 1 || name.is_absolute() {
        return usable(name).map(|()| name.to_owned());
    }
    let candidates = std::env::split_paths(OsStr::new(search_path)).map(|folder| folder.join(name));
    let is_below = |path: &Path| match (outside, path.canonicalize()) {
        (Some(outside), Ok(path)) => path.starts_with(outside),
        _ => false,
    };
    match candidates.into_iter().find(|path| path.is_absolute() && usable(path).is_ok() && !is_below(path)) {
        Some(path) => Ok(path),
        None => Err(format!("the program {} is not on the search path", name.display())),
    }
}

/// This program, so that it can start itself. On Linux the path stays valid when an update replaces the file.
pub fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
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
        let found = |name: &Path| find(name, search, None);
        assert_eq!(found(Path::new("tool")), Err("the program tool is not on the search path".to_owned()));
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(found(&program).unwrap_err().ends_with("is not executable"));
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(found(Path::new("tool")), Ok(program));
        assert!(found(folder.path()).unwrap_err().ends_with("is not a file"));
    }

    #[test]
    fn a_program_of_the_directory_of_work_is_not_taken_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (work, bin) = (folder.join("work"), folder.join("bin"));
        for place in [&work, &bin] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("tool"), "").unwrap();
            std::fs::set_permissions(place.join("tool"), PermissionsExt::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::symlink(&work, folder.join("link")).unwrap();
        let search = ["work", "link", "bin"].map(|name| folder.join(name).display().to_string()).join(":");
        let search = format!(".:{search}");
        let found = |outside: Option<&Path>| find(Path::new("tool"), &search, outside);
        assert_eq!(found(None), Ok(work.join("tool")));
        assert_eq!(found(Some(&work)), Ok(bin.join("tool")));
        assert!(found(Some(&folder)).is_err());
        assert!(find(&work.join("tool"), "", Some(&work)).is_ok(), "a path is the configuration's word");
    }
}
