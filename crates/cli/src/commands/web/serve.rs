//! Serves the page to browsers on this computer.

use std::io;

use ensemble_web::serve::{Serving, serve};

use crate::commands::{DONE, open};
use crate::context::{Context, answers, interrupts};
use crate::failure::{Failure, Result};
use crate::print;

/// Serves until Ctrl-C.
pub(super) async fn run(context: &Context, port: u16, wants_browser: bool) -> Result {
    let (client, _) = context.account()?;
    let server = client.base().as_str().trim_end_matches('/').to_owned();
    let mut interrupted = interrupts()?;
    let Serving { address, server: serving } =
        serve(port, server.clone(), client.origin()).map_err(|error| taken(port, &error))?;
    let handle = serving.handle();
    let serving = tokio::spawn(serving);
    if context.json {
        print::json(&serde_json::json!({ "address": address, "server": server }), false)?;
    } else {
        print::line(&address)?;
        print::note(format!("The page comes from this program, and works with {server}. Ctrl-C stops it."));
        if !answers(&server).await {
            print::note(format!("Nothing answers at {server} now. The page needs it; --server URL names another."));
        }
    }
    if wants_browser {
        open::show(&address);
    }
    tokio::select! {
        _ = interrupted.recv() => {
            handle.stop(true).await;
            Ok(DONE)
        }
        ended = serving => Err(Failure::message(format!("The page is no longer served: {ended:?}."))),
    }
}

fn taken(port: u16, error: &io::Error) -> Failure {
    Failure::message(format!(
        "Port {port} of 127.0.0.1 cannot be used: {error}. Perhaps `ensemble web` runs already. Another one is chosen with --port; a \
         browser has separate keys for each port."
    ))
}
