//! The secrets that an operator provides in production. The first start creates them here and stores them beside the
//! data.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;

pub(crate) struct Secrets {
    pub(crate) key_encryption_key: PathBuf,
    pub(crate) internal_token: String,
}

/// Creates the folder (0700) and the missing files in it (0400).
pub(crate) fn prepare(data: &Path) -> io::Result<Secrets> {
    fs::create_dir_all(data)?;
    fs::set_permissions(data, Permissions::from_mode(0o700))?;
    let key_encryption_key = data.join("key-encryption-key");
    once(&key_encryption_key)?;
    let token = data.join("internal-token");
    once(&token)?;
    Ok(Secrets { key_encryption_key, internal_token: fs::read_to_string(token)?.trim().to_owned() })
}

/// Writes 32 random bytes in base64 to a new file and moves it into place, so that a crash leaves a whole file or none.
fn once(file: &Path) -> io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    let beside = file.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&beside)?;
    writeln!(new, "{}", STANDARD.encode(bytes))?;
    new.sync_all()?;
    fs::rename(&beside, file)
}
