//! `ensemble talk`: leads to the screen of the web app where a session is talked about. The program has no microphone of its own: LiveKit's
//! library for it brings a whole WebRTC stack that is not built from source.

use clap::Args;

use super::session::Named;
use super::{DONE, open};
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// Talk about a live session in the web app: prints the address of its voice screen. The browser there has to be a device of your account,
/// and the server has to have voice.
#[derive(Debug, Args)]
pub(crate) struct Talk {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// Also open it in the browser
    #[arg(long)]
    open: bool,
}

impl Talk {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let session = self.session.find(&me).await?;
        if let Err(error) = me.client.voice_key().await {
            if error.is_not_found() {
                return Err(Failure::message(
                    "This server has no voice. Its operator sets VOICE_PUBLIC_KEY and LiveKit's variables: see docs/VOICE.md.",
                ));
            }
            return Err(error.into());
        }
        let address = format!("{}/sessions/{session}/talk", me.client.base().as_str().trim_end_matches('/'));
        if context.json {
            print::json(&serde_json::json!({ "address": address }), false)?;
        } else {
            print::line(&address)?;
        }
        if self.open {
            open::show(&address);
        }
        Ok(DONE)
    }
}
