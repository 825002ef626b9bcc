//! Talking in this terminal.

use std::io::{self, ErrorKind, IsTerminal};

use ensemble_account::Account;
use ensemble_client::Client;
use ensemble_computer::livekit::{self, Library};
use ensemble_protocol::transcript::view::Card;
use ensemble_screen::Look;
use ensemble_talk::{Around, Lines, Options, Said, Shown};
use ensemble_types::ids::SessionId;
use serde_json::json;
use tokio::signal::unix::SignalKind;

use super::program;
use crate::confirm;
use crate::context::{Context, signalled};
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::live::{self, text};
use crate::print;

const AGREEMENT: &str = "The voice service will hear and read this session. What you say goes to the server and to the makers of its models, and so \
does what the voice reads out of the session. It can send messages, which you can take back for 3 seconds, read, deny requests and bring \
them up. On the server it reads your runs, and which of your sessions work. The server keeps the words until ten minutes after the end. It \
cannot allow anything: only you can, by a key.";

/// Talks until the person ends it. False: the person wants neither to install what is missing nor to agree.
pub(super) async fn talk(
    context: &Context,
    me: &Account,
    id: SessionId,
    voice: Client,
    (options, is_agreed): (Options, bool),
) -> Result<bool> {
    if !is_agreed && !io::stdin().is_terminal() {
        return Err(Failure::message(format!("{AGREEMENT} Agree to that with --yes.")));
    }
    let python = match livekit::find(&environment()).await? {
        Library::Here(python) => python,
        Library::Missing(library) => {
            if !is_agreed && !confirm::change(&library.question())? {
                return Ok(false);
            }
            print::note(format!("Installing LiveKit's library {} …", livekit::version()));
            library.install().await?
        }
    };
    if !is_agreed {
        print::note(AGREEMENT);
        if !confirm::change("Agree and talk")? {
            return Ok(false);
        }
    }
    let signalled = signalled(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?;
    let mut live = live::open(context, me, id).await?;
    let after = live.load().await?;
    live.learn_names().await;
    let has_screen = !context.json && io::stdin().is_terminal() && io::stdout().is_terminal();
    let shown = match has_screen {
        true => Shown::Screen(Look::of(|name| std::env::var_os(name)?.into_string().ok())),
        false => Shown::Lines(Box::new(Printed { is_json: context.json })),
    };
    let around =
        Around { voice, program: program::start(&python)?, shown, sentence: |error| Failure::from(error).to_string() };
    let ended = ensemble_talk::talk((live, after), around, options, signalled).await?;
    if ended.is_kept {
        print::note("The words are kept in the session, as a message of yours.");
    }
    ended.why.map_or(Ok(true), |error| Err(error.into()))
}

/// What happens, as lines.
struct Printed {
    is_json: bool,
}

impl Lines for Printed {
    fn said(&mut self, said: &Said) -> io::Result<()> {
        written(if self.is_json {
            let who = if said.me { "me" } else { "voice" };
            print::json(&json!({ "event": "said", "by": who, "text": said.text }), true)
        } else {
            let who = if said.me { "You" } else { "Voice" };
            print::line(format!("{who}: {}", print::inline(&said.text)))
        })
    }

    fn happens(&mut self, event: &str, about: &str) -> io::Result<()> {
        if self.is_json {
            return written(print::json(&json!({ "event": event, "about": about }), true));
        }
        print::note(format!("({event}: {})", print::inline(about)));
        Ok(())
    }

    fn request(&mut self, card: &Card) -> io::Result<()> {
        let text = text::card(card);
        written(match self.is_json {
            true => print::json(&json!({ "event": "request", "requestId": card.request_id, "card": text }), true),
            false => print::line(text),
        })
    }
}

fn written(printed: Result<()>) -> io::Result<()> {
    printed.map_err(|failure| match failure {
        Failure::OutputClosed => ErrorKind::BrokenPipe.into(),
        failure => io::Error::other(failure.to_string()),
    })
}
