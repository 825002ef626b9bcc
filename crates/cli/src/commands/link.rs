//! `ensemble link`: adds a device to the account, or a machine. The new one runs `ensemble login --link` or `ensemble runner link`.
//!
//! The code is shown here and read there, the six digits are shown there and typed here. So both sides know that they talk to
//! each other, whatever the server between them does.

use std::io::{self, BufRead};

use clap::{Args, ValueEnum};
use ensemble_account::Account;
use ensemble_account::devices::LinkCode;
use ensemble_account::devices::link::{Linking, NewDevice};
use ensemble_screen::Keys;
use ensemble_types::devices::{DeviceKind, Role};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use super::DONE;
use crate::context::{Context, interrupted};
use crate::failure::{Failure, Result, is_loopback};
use crate::{foot, print};

/// How often the digits may be typed.
const TRIES: usize = 3;

/// Adds a device to your account: shows a code for it, and asks for the six digits that the new device shows.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// What the device may do. A primary device can add and remove devices, a linked one cannot [default: primary for a command line,
    /// linked for a browser]
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Kind>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Primary,
    Linked,
}

impl Link {
    /// For a browser, which is linked.
    pub(crate) fn for_browser() -> Self {
        Self { role: Some(Kind::Linked) }
    }

    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let (keys, origin) = (Keys::here(foot::redraw), me.client.origin());
        let digits = Digits::of(keys.as_ref());
        let shown = |code: &_| {
            if is_loopback(origin) {
                print::note(format!(
                    "{origin} leads to this computer only. `ensemble phone` shows how a phone or another computer reaches it.\n"
                ));
            }
            show(context, &me, digits, code)
        };
        self.shown_by(context, &me, origin, shown, digits, interrupted()?).await
    }

    /// For a device that gets the code from `show` and reaches the server at `origin`. What `show` returns is kept until the linking has
    /// ended, which `left` does, too.
    pub(crate) async fn shown_by<T>(
        self,
        context: &Context,
        me: &Account,
        origin: &str,
        show: impl FnOnce(&LinkCode) -> Result<T>,
        digits: Digits<'_>,
        left: impl Future<Output = ()>,
    ) -> Result {
        let linking = me.begin_linking(origin).await?;
        let _kept = match show(linking.code()) {
            Ok(kept) => kept,
            Err(failure) => {
                linking.end().await;
                return Err(failure);
            }
        };
        let ended = tokio::select! {
            ended = self.add_one(context, &linking, digits) => ended,
            () = left => Err(was_left()),
        };
        if ended.is_err() {
            linking.end().await;
        }
        ended
    }

    async fn add_one(&self, context: &Context, linking: &Linking<'_>, digits: Digits<'_>) -> Result {
        let device = tokio::select! {
            device = linking.asked() => device?,
            () = digits.left() => return Err(was_left()),
        };
        let kind = device.kind();
        // Its name is shown later: it could be chosen to look like the digits.
        print::note(format!("A new device ({}) asks to be added.", described(kind)));
        if !digits.match_those_of(&device).await? {
            return Err(Failure::message("These are not the digits that the new device shows. Nothing was added."));
        }
        self.add(context, device).await
    }

    /// Adds a device whose digits were compared, or that needs none.
    pub(crate) async fn add(&self, context: &Context, device: NewDevice<'_>) -> Result {
        let role = role(self.role, device.kind());
        let added = device.add(role).await?;
        if context.json {
            let added = serde_json::json!({ "publicKey": added.public_key, "role": role, "machineId": added.machine });
            print::json(&added, false)?;
        } else if role == Role::Machine {
            print::line(format!("Added {} as a machine. `ensemble runner` on it runs tasks.", added.name))?;
        } else {
            print::line(format!("Added {} as a {} device.", added.name, role.as_str()))?;
        }
        Ok(DONE)
    }
}

fn role(wanted: Option<Kind>, kind: DeviceKind) -> Role {
    match (wanted, kind) {
        (_, DeviceKind::Runner) => Role::Machine,
        (Some(Kind::Primary), _) | (None, DeviceKind::Cli) => Role::Primary,
        _ => Role::Linked,
    }
}

pub(crate) fn described(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cli => "a command line",
        DeviceKind::Web => "a browser",
        DeviceKind::Runner => "a runner",
        DeviceKind::Recovery => "recovery words",
    }
}

pub(crate) fn was_left() -> Failure {
    Failure::message("The linking was ended. If a device had been added by then, `ensemble devices` shows it.")
}

/// Shows the code. It goes to standard error, because it is for a person and not a result.
pub(crate) fn show(context: &Context, me: &Account, digits: Digits<'_>, code: &LinkCode) -> Result<()> {
    let address = code.address();
    let picture = picture(&address)?;
    print::note(format!(
        "Scan the code with the new device, or run `ensemble login --link` there and type:\n\n{}\n\nIt is a secret, and works once, for \
         ten minutes. {} ends it.",
        address.as_str(),
        digits.leaving_key()
    ));
    let own = me.own();
    let bring_back =
        own.list.body().devices.iter().filter(|device| matches!(device.role, Role::Primary | Role::Recovery));
    if bring_back.count() < 2 {
        print::note(format!(
            "Your account depends on one file, {}. `ensemble recovery` makes words that bring it back.",
            print::below_home(&context.home.key_path().to_string_lossy())
        ));
    }
    // Last, so that a small terminal shows all of it.
    print::note(picture);
    Ok(())
}

/// The QR code of an address.
pub(crate) fn picture(address: &str) -> Result<String> {
    // A screen shows it from a short distance, and a terminal has few lines.
    let code = QrCode::with_error_correction_level(address.as_bytes(), EcLevel::L);
    let code = code.map_err(|error| Failure::message(format!("No QR code: {error}.")))?;
    // Dark on light, whatever the colours of the terminal are, as cameras need it.
    Ok(code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
}

/// Who types the digits that a new device shows.
#[derive(Clone, Copy)]
pub(crate) enum Digits<'a> {
    Typed,
    /// At a terminal that is read key by key.
    Keys(&'a Keys),
    /// No one.
    #[cfg_attr(not(feature = "up"), expect(dead_code, reason = "`up` uses it"))]
    Refused,
}

impl<'a> Digits<'a> {
    /// Typed by the person who runs a command.
    pub(crate) fn of(keys: Option<&'a Keys>) -> Self {
        keys.map_or(Self::Typed, Self::Keys)
    }

    /// The key that leaves a code.
    pub(crate) fn leaving_key(self) -> &'static str {
        if matches!(self, Self::Keys(_)) { "Esc" } else { "Ctrl-C" }
    }

    /// Waits until a person presses what leaves. While digits are typed, it is for [`Self::match_those_of`].
    pub(crate) async fn left(self) {
        match self {
            Self::Keys(keys) => keys.left().await,
            _ => std::future::pending().await,
        }
    }

    pub(crate) async fn match_those_of(self, device: &NewDevice<'_>) -> Result<bool> {
        for left in (0..TRIES).rev() {
            if matches!(self, Self::Refused) {
                return Ok(false);
            }
            print::ask("Type the six digits that the new device shows:")?;
            let typed = match self {
                Self::Keys(keys) => Some(keys.line(print::error).await.ok_or_else(was_left)?),
                _ => typed_line().await?,
            };
            let Some(typed) = typed else { return Ok(false) };
            if device.has_digits(&typed) {
                return Ok(true);
            }
            if left > 0 {
                print::note(format!("These are not the digits. {left} more tries."));
            }
        }
        Ok(false)
    }
}

/// A line that a person types, while other things can happen. `None`: standard input has ended.
async fn typed_line() -> Result<Option<String>> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|length| (length > 0).then_some(line))
    });
    read.await
        .map_err(|error| Failure::message(format!("Standard input cannot be read: {error}.")))?
        .map_err(Failure::from)
}
