//! `ensemble open`: opens the server's page in the browser of this computer and adds that browser to the account, or prints the
//! address where there is no browser.

mod offer;

use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_computer::browser::{browse, hand_over};
use ensemble_computer::listener::{self, Listener};
use ensemble_screen::Keys;

use super::DONE;
use super::link::{Digits, Link, was_left};
use crate::context::{Context, anonymous, interrupted};
use crate::failure::{Failure, Result};
use crate::{foot, print};
use offer::Offer;

/// Within this time after a browser was added, another one that asks with its code is reported.
const WATCHED: Duration = Duration::from_secs(3);
pub(crate) const NO_BROWSER: &str = "There is no browser here. Open the server's address where there is one, and type `ensemble link` here to \
                                     add it.";

/// Opens the page in the browser of this computer, which asks whether to add it to your account. At a server of another computer it shows
/// six digits, which you type here. Without a browser it prints the address of the page.
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
            print::note(NO_BROWSER);
            return Ok(DONE);
        }
        let (me, keys) = (context.me().await?, Keys::here(foot::redraw));
        open_browser(context, &me, Digits::of(keys.as_ref()), interrupted()?).await
    }
}

/// Opens the browser of this computer and adds it to the account, until `left`.
pub(crate) async fn open_browser(
    context: &Context,
    me: &Account,
    digits: Digits<'_>,
    left: impl Future<Output = ()>,
) -> Result {
    if me.client.is_on_loopback() {
        check_listeners(me)?;
    }
    if is_of_here(me).await? {
        return add_browser_of_here(context, me, digits, left).await;
    }
    let hand_over = |code: &_| {
        if me.client.is_on_loopback() {
            check_listeners(me)?;
        }
        let file = hand_over(&context.home, code, None)?;
        print::note(format!(
            "Opened in your browser. If it shows your sessions, it is in your account already: press {}. If it shows nothing, type \
             `ensemble link` and paste the address that it shows into the browser.",
            digits.leaving_key()
        ));
        Ok(file)
    };
    Link::for_browser().shown_by(context, me, me.client.origin(), hand_over, digits, left).await
}

/// Whether a browser of this computer needs no digits: only this computer reaches the server's listener, which is this user's program.
pub(crate) async fn is_of_here(me: &Account) -> Result<bool> {
    Ok(listener::own_sockets(&me.client).is_some() && me.client.version().await?.local)
}

/// Another user's program would get the code of the link with the page that it serves, and digits would not show that.
fn check_listeners(me: &Account) -> Result {
    for address in listener::addresses_of(&me.client) {
        let why = match listener::at(address) {
            Listener::Own(_) | Listener::Perhaps => continue,
            Listener::AnotherUser => "The program there is not known to be yours",
            Listener::Missing => "No program listens there, so another user's could answer",
        };
        return Err(Failure::message(format!(
            "{address}: {why}. Nothing was opened. If your server is at 127.0.0.1, name it so (`ensemble --server http://127.0.0.1:{}`). \
             `ensemble web` opens a page of your own for every server.",
            address.port()
        )));
    }
    Ok(DONE)
}

async fn add_browser_of_here(
    context: &Context,
    me: &Account,
    digits: Digits<'_>,
    left: impl Future<Output = ()>,
) -> Result {
    let mut left = pin!(left);
    let offer = Offer::make(context, me).await?;
    let ended = tokio::select! {
        ended = offer.answered(context, digits) => ended,
        () = left.as_mut() => Err(was_left()),
    };
    if ended.is_err() {
        offer.end().await;
    } else {
        tokio::select! {
            () = offer.watched(WATCHED) => {}
            () = left => {}
        }
    }
    ended
}

/// Opens an address that was printed, where a person has a browser.
pub(crate) fn show(address: &str) {
    if is_for_a_person() {
        // The address was printed, so a failure needs no message.
        let _is_shown = browse(address);
    }
}

pub(crate) fn is_for_a_person() -> bool {
    std::io::stdout().is_terminal() && has_display()
}

pub(crate) fn has_display() -> bool {
    cfg!(target_os = "macos") || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some())
}
