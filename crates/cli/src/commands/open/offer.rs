//! A browser of this computer becomes a device of the account without digits.
//!
//! No person compares anything, so all depends on who has the secret of the link. It is in a file of this user alone, which the browser
//! opens: other users see the arguments of programs, and a terminal is read, recorded and shared.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_account::devices::LinkCode;
use ensemble_account::devices::link::{HERE_WITHIN, Linking};
use ensemble_account::{Account, Error};
use ensemble_computer::listener::own_sockets;

use super::browse;
use crate::commands::DONE;
use crate::commands::link::{Digits, Link, described, was_left};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// A browser that can read the file has shown the page by then, and a person has pressed the button.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// The longest life of a link. A file that is older is of no use to anyone.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// A link that a browser of this computer was given.
pub(super) struct Offer<'a> {
    me: &'a Account,
    /// Those of the server when the code was handed over.
    sockets: Vec<String>,
    linking: Linking<'a>,
    /// Until a device has asked.
    file: Cell<Option<Handover>>,
}

impl<'a> Offer<'a> {
    pub(super) async fn make(context: &Context, me: &'a Account) -> Result<Self> {
        let name = me.client.account().await?.display_name.unwrap_or_default();
        let Some(sockets) = own_sockets(&me.client) else { return Err(started_again()) };
        let linking = me.begin_linking(me.client.origin()).await?;
        match hand_over(context, linking.code(), Some(&name)) {
            Ok(file) => Ok(Self { me, sockets, linking, file: Cell::new(Some(file)) }),
            Err(failure) => {
                linking.end().await;
                Err(failure)
            }
        }
    }

    /// Adds the browser when it asks.
    pub(super) async fn answered(&self, context: &Context, digits: Digits<'_>) -> Result {
        print::note(format!(
            "Opened in your browser. Press “Add this browser” there, within two minutes. {} leaves.",
            digits.leaving_key()
        ));
        let mut asked = std::pin::pin!(self.linking.asked_within(HERE_WITHIN));
        let asked = async {
            if let Ok(asked) = tokio::time::timeout(SHOWN_WITHIN, &mut asked).await {
                return asked;
            }
            print::note(
                "No browser has asked yet. If it shows nothing, it cannot read the file that it was given: type `ensemble link` and \
                 paste the address. If it shows another account, sign out there first.",
            );
            asked.await
        };
        let device = tokio::select! {
            device = asked => device,
            () = digits.left() => return Err(was_left()),
        };
        self.file.take();
        let device = match device {
            Err(Error::LinkEnded) => {
                print::note(
                    "A device of your account has ended this. So does a browser that has your account already.",
                );
                return Ok(DONE);
            }
            Err(Error::CodeNotUsed) => {
                return Err(Failure::message(
                    "No browser asked within two minutes. Type `ensemble link` and paste the address.",
                ));
            }
            device => device?,
        };
        // Another user's program may have been in the server's place meanwhile, with the code. Digits would not show that.
        if own_sockets(&self.me.client).as_ref() != Some(&self.sockets) {
            return Err(started_again());
        }
        if !device.is_here() || self.linking.is_asked_again(Duration::ZERO).await {
            print::note(format!(
                "A device ({}) asks to be added. It is not certain that it is the browser of this computer.",
                described(device.kind())
            ));
            if !digits.match_those_of(&device).await? {
                return Err(Failure::message("Nothing was added. `ensemble link` adds every device, with its digits."));
            }
        }
        Link::for_browser().add(context, device).await
    }

    /// Says so if another device asks with the same code.
    pub(super) async fn watched(&self, within: Duration) {
        if self.linking.is_asked_again(within).await {
            print::note(
                "Another device asked with the same code, and was refused. If you have pressed the button in one browser only, someone \
                 else has read the code: `ensemble devices` shows what was added, and `ensemble devices remove` removes it.",
            );
        }
    }

    pub(super) async fn end(&self) {
        self.linking.end().await;
    }
}

fn started_again() -> Failure {
    Failure::message("The server ended or was started again meanwhile. Nothing was added. Try again.")
}

/// A file with a code, until the linking has ended.
pub(super) struct Handover(PathBuf);

impl Drop for Handover {
    fn drop(&mut self) {
        let _removed_already = fs::remove_file(&self.0);
    }
}

/// Gives the browser the code in a file that only this user can read. `name`: whose account it is, for a page that asks nothing else.
pub(super) fn hand_over(context: &Context, code: &LinkCode, name: Option<&str>) -> Result<Handover> {
    // A user who can write there could have the file before this one.
    context.home.check_writable()?;
    let folder = context.home.path().join("open");
    forget_old(&folder);
    let file = Handover(folder.join(format!("{:016x}.html", rand::random::<u64>())));
    let page = page(&code.address(), name);
    context.home.write_secret(&file.0, page.as_bytes())?;
    browse(&format!("file://{}", escaped(&std::path::absolute(&file.0)?.to_string_lossy()))).map_err(|error| {
        Failure::message(format!(
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
