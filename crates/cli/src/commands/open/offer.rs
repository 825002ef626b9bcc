//! A browser of this computer becomes a device of the account without digits.
//!
//! No person compares anything, so all depends on who has the secret of the link.

use std::cell::Cell;
use std::time::Duration;

use ensemble_account::devices::link::{HERE_WITHIN, Linking};
use ensemble_account::{Account, Error};
use ensemble_computer::browser::{Handover, hand_over};
use ensemble_computer::listener::own_sockets;

use crate::commands::DONE;
use crate::commands::link::{Digits, Link, described, was_left};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// A browser that can read the file has shown the page by then, and a person has pressed the button.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);

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
        match hand_over(&context.home, linking.code(), Some(&name)) {
            Ok(file) => Ok(Self { me, sockets, linking, file: Cell::new(Some(file)) }),
            Err(error) => {
                linking.end().await;
                Err(error.into())
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
