//! `ensemble talk`: talks about a session with the machine's microphone, or leads to the screen of the web app for it.

mod here;
mod program;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ensemble_account::sessions::Named;
use ensemble_talk::Options;
use ensemble_types::text::Text;
use secrecy::SecretString;

use super::{DONE, open};
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// Talk about a live session: here in a terminal, with this machine's microphone and loudspeaker. Over ssh, and where there is no terminal,
/// it prints the address of the web app's voice screen instead; the browser there has to be a device of your account.
///
/// The server has to have voice. The first conversation here installs LiveKit's library for Python, after asking.
#[derive(Debug, Args)]
pub(crate) struct Talk {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// Print the address of the page, where one talks in the browser
    #[arg(long, conflicts_with_all = ["here", "input", "output", "yes", "keep"])]
    page: bool,
    /// Also open it in the browser
    #[arg(long, conflicts_with_all = ["here", "input", "output", "yes", "keep"])]
    open: bool,
    /// Talk here, also over ssh
    #[arg(long)]
    here: bool,
    /// Speak what is in this file instead of using microphone and loudspeaker (WAV, 16 bits)
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write what the voice says into this file (WAV)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continue for this long after the file
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "input")]
    listen: u64,
    /// The language to talk in, as in en or de-AT [default: the terminal's]
    #[arg(long)]
    language: Option<String>,
    /// The voice does not say by itself when the coding agent asks or ends
    #[arg(long)]
    no_news: bool,
    /// In the end, seal the words into the session as a message of yours
    #[arg(long)]
    keep: bool,
    /// Do not ask: the voice service will hear and read this session, and LiveKit's library is installed if it is missing
    #[arg(long, short)]
    yes: bool,
}

impl Talk {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let voice = match me.client.voice_key().await {
            Ok(key) => me.client.with_voice_key(SecretString::from(key.voice_key)),
            Err(error) if error.is_not_found() => {
                return Err(Failure::message(
                    "This server has no voice. Its operator sets VOICE_PUBLIC_KEY and LiveKit's variables: see docs/VOICE.md.",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let is_here = self.is_here(context);
        let id = self.session.find(&me).await?;
        let address = format!("{}/sessions/{id}/talk", me.client.base().as_str().trim_end_matches('/'));
        if !is_here {
            return page(context, &address, self.open);
        }
        let options = Options {
            input: self.input,
            output: self.output,
            listen: Duration::from_secs(self.listen),
            language: match self.language {
                Some(named) => {
                    let named = Text::new(named).map_err(|error| Failure::message(format!("The language {error}.")))?;
                    Some(named)
                }
                None => language(),
            },
            tells_news: !self.no_news,
            keeps: self.keep,
        };
        if !here::talk(context, &me, id, voice, (options, self.yes)).await? {
            print::note("Not here, then. In the browser one talks at:");
            return page(context, &address, false);
        }
        Ok(DONE)
    }

    /// A person at a terminal talks here, unless the terminal is on another machine than its microphone.
    fn is_here(&self, context: &Context) -> bool {
        if self.page || self.open {
            return false;
        }
        let is_remote = ["SSH_CONNECTION", "SSH_TTY"].iter().any(|name| std::env::var_os(name).is_some());
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.here || self.input.is_some() || (is_terminal && !is_remote && !context.json)
    }
}

fn page(context: &Context, address: &str, opens: bool) -> Result {
    if context.json {
        print::json(&serde_json::json!({ "address": address }), false)?;
    } else {
        print::line(address)?;
    }
    if opens {
        open::show(address);
    }
    Ok(DONE)
}

/// The language of the terminal (POSIX: `LC_ALL` before `LC_MESSAGES` before `LANG`), as in `de-AT` for `de_AT.UTF-8`.
fn language() -> Option<Text<0, 35>> {
    let set = ["LC_ALL", "LC_MESSAGES", "LANG"]
        .iter()
        .find_map(|name| std::env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty()))?;
    let name = set.split(['.', '@']).next().unwrap_or_default().replace('_', "-");
    let is_language = name.len() >= 2 && name != "POSIX" && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    Text::new(name).ok().filter(|_| is_language)
}
