//! `ensemble open`: opens the server's page in the browser of this computer and adds that browser to the account, or prints the
//! address where there is no browser.

use std::fs;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use ensemble_account::devices::LinkCode;

use super::DONE;
use super::link::Link;
use crate::context::{Context, anonymous};
use crate::failure::Result;
use crate::print;

/// Opens the page in the browser of this computer and adds the browser to your account: it shows six digits, which you type here.
/// Without a browser it prints the address of the page.
#[derive(Debug, Args)]
pub(crate) struct Open {
    /// Open the documentation of the server's interface, where calls can be tried. `ensemble token` prints the token that it asks for
    #[arg(long)]
    docs: bool,
}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let client = anonymous(context.server()?.0)?;
        let page = client.base().as_str().trim_end_matches('/').to_owned();
        let address = if self.docs { format!("{page}/docs") } else { page };
        if context.json {
            print::json(&serde_json::json!({ "address": address }), false)?;
            return Ok(DONE);
        }
        print::line(&address)?;
        if self.docs {
            show(&address);
            return Ok(DONE);
        }
        if !is_for_a_person() {
            print::note(
                "There is no browser here. Open the address where there is one, and type `ensemble link` here to add it.",
            );
            return Ok(DONE);
        }
        let me = context.me().await?;
        Link::for_browser().shown_by(context, &me, me.client.origin(), |code| hand_over(context, code)).await
    }
}

/// A file with a code, until the linking has ended.
struct Handover(PathBuf);

impl Drop for Handover {
    fn drop(&mut self) {
        let _removed_already = fs::remove_file(&self.0);
    }
}

/// Gives the browser the code in a file that only this user can read: other users see the arguments of a program.
fn hand_over(context: &Context, code: &LinkCode) -> Result<Handover> {
    let file = Handover(context.home.path().join(format!("open-{}.html", std::process::id())));
    // The characters of a code need no escapes in HTML.
    let address = code.address();
    let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={}\">\n", address.as_str());
    context.home.write_secret(&file.0, page.as_bytes())?;
    browse(&format!("file://{}", file.0.display()));
    print::note(
        "Opened in your browser. If it shows your sessions, it is in your account already: press Ctrl-C. If it shows nothing, type \
         `ensemble link` and paste the address that it shows into the browser.",
    );
    Ok(file)
}

/// Opens an address that was printed, where a person has a browser.
pub(crate) fn show(address: &str) {
    if is_for_a_person() {
        browse(address);
    }
}

fn is_for_a_person() -> bool {
    std::io::stdout().is_terminal() && has_display()
}

fn has_display() -> bool {
    cfg!(target_os = "macos") || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Starts the browser, which may stay as long as its windows are open, and does not end with a Ctrl-C here. The address was
/// printed, so a failure needs no message.
fn browse(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(address).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _no_browser = command.spawn();
}
