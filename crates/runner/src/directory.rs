//! Checks the working directory of a task: it must be below a root that the owner of the machine allows.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use ensemble_process::Directory;

use crate::outcome::Outcome;

/// The longest path that the interface allows.
const LONGEST: usize = 4096;

/// `~` and `~/…` are the home of the machine's user, whose path people do not know by heart. Any other path stays as it is.
pub(crate) fn from_home(wanted: &str, home: Option<&str>) -> PathBuf {
    let below = wanted.strip_prefix('~').filter(|below| below.is_empty() || below.starts_with('/'));
    match (home, below) {
        (Some(home), Some(below)) => Path::new(home).join(below.trim_start_matches('/')),
        _ => PathBuf::from(wanted),
    }
}

/// Finds the directory. The guard enters it so that a symbolic link that is added later cannot redirect it.
pub(crate) fn find(wanted: &Path, roots: &[PathBuf]) -> Result<Directory, Outcome> {
    let refuse =
        |code: &str, why: &str| Outcome::refused(code, format!("The working directory {} {why}.", wanted.display()));
    let odd = !wanted.is_absolute() || wanted.components().any(|part| part == Component::ParentDir);
    if odd || wanted.as_os_str().len() > LONGEST || wanted.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(refuse("WORKING_DIRECTORY_INVALID", "is not an absolute path without `..`"));
    }
    let unusable = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => refuse("WORKING_DIRECTORY_NOT_FOUND", "does not exist on this machine"),
        ErrorKind::NotADirectory => refuse("WORKING_DIRECTORY_NOT_A_DIRECTORY", "is not a directory"),
        ErrorKind::PermissionDenied => refuse("WORKING_DIRECTORY_NOT_READABLE", "is not readable for the runner"),
        _ => refuse("WORKING_DIRECTORY_NOT_READABLE", &format!("cannot be used: {error}")),
    };
    let real = wanted.canonicalize().map_err(|error| unusable(&error))?;
    let placed = roots.iter().filter_map(|root| root.canonicalize().ok()).find_map(|root| {
        let below = real.strip_prefix(&root).ok()?.to_owned();
        Some(Directory { root, below })
    });
    let Some(directory) = placed else {
        return Err(refuse(
            "WORKING_DIRECTORY_NOT_ALLOWED",
            "is not below a directory that this runner allows. Add it to `roots` in the runner's configuration (runner.yaml), or start the runner again with `--root`",
        ));
    };
    if !real.is_dir() {
        return Err(refuse("WORKING_DIRECTORY_NOT_A_DIRECTORY", "is not a directory"));
    }
    // Reading and entering a directory are two separate permissions.
    std::fs::read_dir(&real).and_then(|_| std::fs::metadata(real.join("."))).map_err(|error| unusable(&error))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(found: Result<Directory, Outcome>) -> String {
        found.unwrap_err().error.unwrap().code.into_string()
    }

    #[test]
    fn a_tilde_is_the_home_of_the_machines_user() {
        for (wanted, found) in [
            ("~", "/home/me/"),
            ("~/a b/c", "/home/me/a b/c"),
            ("~//c", "/home/me/c"),
            ("~other/c", "~other/c"),
            ("/a/~/c", "/a/~/c"),
        ] {
            assert_eq!(from_home(wanted, Some("/home/me")), Path::new(found), "{wanted}");
        }
        assert_eq!(code(find(&from_home("~/c", None), &[])), "WORKING_DIRECTORY_INVALID");
        // What leads out of the home leads out of the roots, too.
        assert_eq!(code(find(&from_home("~/../c", Some("/home/me")), &[])), "WORKING_DIRECTORY_INVALID");
    }

    #[test]
    fn only_real_directories_below_a_root_are_entered() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let inside = root.join("allowed/a");
        let outside = root.join("outside");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(inside.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(&inside, outside.join("back")).unwrap();
        let roots = [root.join("allowed"), root.join("missing")];

        let allowed = Directory { root: root.join("allowed"), below: PathBuf::from("a") };
        assert_eq!(find(&inside, &roots).unwrap(), allowed);
        assert_eq!(find(&outside.join("back"), &roots).unwrap(), allowed, "a link into a root is its target");
        assert_eq!(find(&root.join("allowed"), &roots).unwrap().below, PathBuf::new());
        assert_eq!(code(find(&inside.join("gone"), &roots)), "WORKING_DIRECTORY_NOT_FOUND");
        assert_eq!(code(find(&inside.join("file"), &roots)), "WORKING_DIRECTORY_NOT_A_DIRECTORY");
        assert_eq!(code(find(&inside.join("file/x"), &roots)), "WORKING_DIRECTORY_NOT_A_DIRECTORY");
        assert_eq!(code(find(&inside.join("link"), &roots)), "WORKING_DIRECTORY_NOT_ALLOWED");
        assert_eq!(code(find(&outside, &roots)), "WORKING_DIRECTORY_NOT_ALLOWED");
        assert_eq!(code(find(Path::new("relative"), &roots)), "WORKING_DIRECTORY_INVALID");
        assert_eq!(code(find(&inside.join("../a"), &roots)), "WORKING_DIRECTORY_INVALID");
        assert_eq!(code(find(Path::new("/a\0b"), &roots)), "WORKING_DIRECTORY_INVALID");
    }
}
