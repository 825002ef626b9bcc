//! The file that has the address for the first account of a server, until there is one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ensemble_protocol::seal::InviteCode;

/// Says how the first account is made, in the log and in the file of this user.
pub(crate) fn say(file: &Path, code: &InviteCode) {
    tracing::info!(
        address = code.address().as_str(),
        file = %file.display(),
        "No account exists yet. `ensemble join` makes the first one with this address. Another one follows after seven days"
    );
    if let Err(error) = write_private(file, &code.address()) {
        tracing::warn!(file = %file.display(), %error, "The address for the first account stands in the log only");
    }
}

pub(crate) fn remove(file: &Path) {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "The address for the first account is over, and its file stays");
        }
        _ => {}
    }
}

fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    let _left_over = fs::remove_file(&new);
    let mut to = fs::File::options().create_new(true).write(true).mode(0o600).open(&new)?;
    to.write_all(text.as_bytes())?;
    fs::rename(new, file)
}
