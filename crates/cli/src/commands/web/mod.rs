//! `ensemble web`: the web app from this program instead of from a server.

#[cfg(feature = "web")]
mod serve;
#[cfg(feature = "web")]
mod verify;

use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// Serves the web app that is inside this program to browsers on this computer. The page talks to your server, which then gives it data
/// and no code. The browser keeps its keys for the address that is printed, so stay with one port. Ctrl-C stops it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Web {
    /// The port on 127.0.0.1 (0: any free port). A browser has separate keys for each, so stay with one
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    port: u16,
    /// Also open the page in the browser
    #[arg(long)]
    open: bool,
    #[cfg(feature = "web")]
    #[command(subcommand)]
    also: Option<Also>,
}

#[cfg(feature = "web")]
#[derive(Debug, clap::Subcommand)]
enum Also {
    /// Check that a server serves the page of this program
    Verify(verify::Verify),
}

#[cfg(not(feature = "web"))]
impl Web {
    pub(crate) async fn run(self, _context: &Context) -> Result {
        let _ = (self.port, self.open);
        Err(Failure::message("This `ensemble` was built without the web app. Build it with the feature `web`."))
    }
}

#[cfg(feature = "web")]
impl Web {
    pub(crate) async fn run(self, context: &Context) -> Result {
        if !ensemble_web::is_built() {
            return Err(Failure::message(
                "This `ensemble` was built without the web app. Run `make web` where its source is, then build it again.",
            ));
        }
        match self.also {
            Some(Also::Verify(command)) => command.run(context).await,
            None => serve::run(context, self.port, self.open).await,
        }
    }
}
