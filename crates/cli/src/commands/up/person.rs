//! The person at the terminal of `ensemble up`, who presses keys while everything runs.

use ensemble_account::Account;
use ensemble_screen::Keys;
use ensemble_types::devices::DeviceKind;

use super::signals::Signals;
use crate::commands::link::Digits;
use crate::commands::open::{NO_BROWSER, is_for_a_person, is_of_here, open_browser, show};
use crate::commands::phone::Phone;
use crate::context::Context;
use crate::{foot, print};

const FOOT: &str = "p phone · b browser · q quit";
const PHONE: u8 = b'p';
const BROWSER: u8 = b'b';
const QUIT: u8 = b'q';

pub(super) struct Person {
    me: Account,
    keys: Option<Keys>,
    /// Whether the browser opens by itself.
    opens: bool,
}

impl Person {
    /// Without a browser in the account, the one of this computer opens by itself, unless it must not.
    pub(super) async fn here(me: Account, no_open: bool) -> Self {
        let opens = !no_open && is_for_a_person() && has_no_browser(&me).await;
        Self { me, keys: Keys::here(foot::redraw), opens }
    }

    pub(super) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Does what is pressed, until `q` or a signal. `public`: where others reach the server by https.
    pub(super) async fn attended(self, context: &Context, public: Option<String>, signals: &mut Signals) {
        let Self { me, keys, mut opens } = self;
        if opens && keys.is_none() && !is_of_here(&me).await.unwrap_or_default() {
            // Others reach this listener, so a browser needs digits, and no one can type them.
            show(me.client.origin());
            opens = false;
        }
        let digits = keys.as_ref().map_or(Digits::Refused, Digits::Keys);
        let mut is_over = false;
        while !is_over {
            let pressed = match &keys {
                _ if std::mem::take(&mut opens) => BROWSER,
                None => return signals.next().await,
                Some(keys) => {
                    keys.forget();
                    foot::show(FOOT);
                    tokio::select! {
                        pressed = keys.pressed_of(&[PHONE, BROWSER, QUIT]) => pressed,
                        () = signals.next() => QUIT,
                    }
                }
            };
            if keys.is_some() {
                foot::hold();
            }
            let left = async {
                signals.next().await;
                is_over = true;
            };
            let done = match pressed {
                PHONE => Phone::at(public.clone()).shown(context, &me, digits, left).await,
                BROWSER if !is_for_a_person() => {
                    print::note(NO_BROWSER);
                    continue;
                }
                BROWSER => open_browser(context, &me, digits, left).await,
                _ => break,
            };
            if let Some(failure) = done.err().filter(|_| !is_over) {
                print::note(failure.to_string());
            }
        }
        foot::clear();
    }
}

async fn has_no_browser(me: &Account) -> bool {
    me.devices().await.is_ok_and(|devices| !devices.iter().any(|device| device.kind == DeviceKind::Web))
}
