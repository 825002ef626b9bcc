//! The browser of this computer, and a code that it gets without an argument of a program.
//!
//! The code is in a file of this user alone, which the browser opens: other users see the arguments of programs, and a terminal is read,
//! recorded and shared.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ensemble_account::Home;
use ensemble_account::devices::LinkCode;

use crate::error::{Error, Result};

/// The longest life of a link. A file that is older is of no use to anyone.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// Starts the browser, which may stay as long as its windows are open, and does not end with a Ctrl-C here.
pub fn browse(address: &str) -> std::io::Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(address).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// A file with a code, until the linking has ended.
pub struct Handover(PathBuf);

impl Drop for Handover {
    fn drop(&mut self) {
        let _removed_already = fs::remove_file(&self.0);
    }
}

/// Gives the browser the code in a file that only this user can read. `name`: whose account it is, for a page that asks nothing else.
pub fn hand_over(home: &Home, code: &LinkCode, name: Option<&str>) -> Result<Handover> {
    // A user who can write there could have the file before this one.
    home.check_writable()?;
    let folder = home.path().join("open");
    forget_old(&folder);
    let file = Handover(folder.join(format!("{:016x}.html", rand::random::<u64>())));
    let page = page(&code.address(), name);
    home.write_secret(&file.0, page.as_bytes())?;
    browse(&format!("file://{}", escaped(&std::path::absolute(&file.0)?.to_string_lossy()))).map_err(|error| {
        Error::sentence(format!(
            "No browser can be started here ({error}). Open the server's page, and type `ensemble link` to add the browser."
        ))
    })?;
    Ok(file)
}

/// Leads to the address. No part of it needs escapes in HTML.
fn page(address: &str, name: Option<&str>) -> String {
    let name = name.map(|name| format!(".{}", escaped(name))).unwrap_or_default();
    format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}{name}\">\n")
}

/// What programs that were killed have left.
fn forget_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|found| found.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LONGEST)) {
            let _removed_already = fs::remove_file(entry.path());
        }
    }
}

/// Percent-encodes all that an address could take for something else (RFC 3986, section 2.3).
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_the_address() {
        let shown = page("http://h/link#v1.a.b", Some("\"><script>Änne O'N; #.&amp;\n"));
        assert!(shown.ends_with(
            "content=\"0; url=http://h/link#v1.a.b.%22%3E%3Cscript%3E%C3%84nne%20O%27N%3B%20%23.%26amp%3B%0A\">\n"
        ));
        assert!(page("http://h/link#v1.a.b", None).ends_with("url=http://h/link#v1.a.b\">\n"));
    }

    #[test]
    fn what_a_killed_program_has_left_is_removed_when_it_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["1.html", "2.html"].map(|name| folder.path().join(name));
        for path in [&old, &new] {
            fs::write(path, "x").unwrap();
        }
        let long_ago = fs::metadata(&old).unwrap().modified().unwrap() - LONGEST - Duration::from_secs(1);
        fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        forget_old(folder.path());
        assert_eq!((old.exists(), new.exists()), (false, true));
    }
}
