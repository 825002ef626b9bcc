//! `ensemble open`: shows the server's documentation in the browser, or prints its address where there is none.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::Args;

use super::DONE;
use crate::context::{Context, anonymous};
use crate::failure::Result;
use crate::print;

/// Opens the page where the server's interface can be read and tried. Prints its address where there is no browser.
/// `ensemble token` prints the token that the page asks for.
#[derive(Debug, Args)]
pub(crate) struct Open {}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let client = anonymous(context.server()?.0)?;
        let address = format!("{}/docs", client.base().as_str().trim_end_matches('/'));
        if context.json {
            print::json(&serde_json::json!({ "address": address }), false)?;
            return Ok(DONE);
        }
        print::line(&address)?;
        show(&address);
        Ok(DONE)
    }
}

/// Opens an address that was printed, where a person has a browser.
pub(crate) fn show(address: &str) {
    if std::io::stdout().is_terminal() && has_display() {
        browse(address);
    }
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
