//! The secrets that an operator provides in production. The first start creates them here and stores them next to the
//! data.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;

/// What tells one data directory from another one.
const ID: &str = "id";

pub(crate) struct Secrets {
    pub(crate) key_encryption_key: PathBuf,
    pub(crate) internal_token: String,
    pub(crate) data_id: String,
}

/// Creates the folder (0700) and the missing files in it (0400).
pub(crate) fn prepare(data: &Path) -> io::Result<Secrets> {
    fs::create_dir_all(data)?;
    fs::set_permissions(data, Permissions::from_mode(0o700))?;
    let key_encryption_key = data.join("key-encryption-key");
    once(&key_encryption_key)?;
    let token = data.join("internal-token");
    once(&token)?;
    once(&data.join(ID))?;
    // identity checks the other file when it reads it.
    private(&token)?;
    let data_id = fs::read_to_string(data.join(ID))?.trim().to_owned();
    Ok(Secrets { key_encryption_key, internal_token: fs::read_to_string(token)?.trim().to_owned(), data_id })
}

/// The id of a data directory: base64 of 32 random bytes. `None`: it was never used, or by an earlier version only.
///
/// # Errors
/// The file is there and cannot be read.
pub fn data_id(data: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(data.join(ID)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fails if other users can read or change the file, because it is then no longer secret.
fn private(file: &Path) -> io::Result<()> {
    let mode = fs::metadata(file)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let file = file.display();
    Err(io::Error::other(format!(
        "other users can read or change {file} (mode {mode:03o}). If one of them may have read it, remove it, and the next \
         start makes a new one. Otherwise run `chmod 400` on it"
    )))
}

/// Writes 32 random bytes in base64 to a new file and moves it into place, so that a crash leaves a whole file or none.
fn once(file: &Path) -> io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    let unfinished = file.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&unfinished)?;
    writeln!(new, "{}", STANDARD.encode(bytes))?;
    new.sync_all()?;
    fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let made = prepare(&data).unwrap().internal_token;
        for mode in [0o440, 0o404, 0o620] {
            fs::set_permissions(data.join("internal-token"), Permissions::from_mode(mode)).unwrap();
            let error = prepare(&data).err().unwrap().to_string();
            assert!(error.contains("internal-token") && error.contains("chmod 400"), "{error}");
        }
        fs::set_permissions(data.join("internal-token"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(prepare(&data).unwrap().internal_token, made);
    }
}
