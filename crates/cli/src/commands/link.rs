//! `ensemble link`: adds a device to the account, or a machine. The new one runs `ensemble login --link` or `ensemble runner link`.
//!
//! The code is shown here and read there, the six digits are shown there and typed here. So both sides know that they talk to
//! each other, whatever the server between them does.

use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ensemble_account::Account;
use ensemble_account::devices::change;
use ensemble_account::kept_lists;
use ensemble_account::names::next_list;
use ensemble_client::devices::LinkText;
use ensemble_protocol::seal::LinkCode;
use ensemble_types::devices::{
    CompletedDeviceLink, DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceLinkState, ListedDevice,
    PastDeviceLink, Role,
};
use ensemble_types::ids::MachineId;
use ensemble_types::text::Blob;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

use super::DONE;
use super::machine::register;
use crate::context::{Context, interrupts, now};
use crate::failure::{Failure, Result};
use crate::print;

/// One call waits so long. A linking lasts ten minutes.
pub(super) const ONE_WAIT: Duration = Duration::from_secs(25);
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 60);
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
        self.show_at(context, &me, me.client.origin()).await
    }

    /// `origin` is the address at which the new device reaches the server.
    pub(crate) async fn show_at(self, context: &Context, me: &Account, origin: &str) -> Result {
        self.shown_by(context, me, origin, show).await
    }

    /// The same for a device that gets the code from `show`. What that returns is kept until the linking has ended.
    pub(crate) async fn shown_by<T>(
        self,
        context: &Context,
        me: &Account,
        origin: &str,
        show: impl FnOnce(&LinkCode) -> Result<T>,
    ) -> Result {
        check_primary(me)?;
        let mut interrupt = interrupts()?;
        let created = me.client.create_device_link().await?;
        let code = LinkCode::new(origin, &created.id);
        let _kept = show(&code)?;
        let ended = tokio::select! {
            ended = self.add_one(context, me, &code) => ended,
            _ = interrupt.recv() => Err(Failure::message(
                "The linking was ended. If a device had been added by then, `ensemble devices` shows it.",
            )),
        };
        if ended.is_err() {
            // Nobody can use the code any more. Without an answer it ends by itself after ten minutes.
            let _ended_already = me.client.refuse_device_link(&created.id).await;
        }
        ended
    }

    async fn add_one(&self, context: &Context, me: &Account, code: &LinkCode) -> Result {
        let Some(request) = asked(me, &code.id).await? else {
            return Err(Failure::message("Nobody used the code within ten minutes. Run `ensemble link` again."));
        };
        let text = LinkText::of(&code.base, &code.id, &request);
        if !text.is_mac(code.secret(), &request.mac) {
            return Err(Failure::message(
                "Somebody answered who had not seen the code, or changed what the new device sent. Nothing was added. If it \
                 happens again, do not trust the server.",
            ));
        }
        // Its name is shown later: it could be chosen to look like the digits.
        print::note(format!("A new device ({}) asks to be added.", described(request.kind)));
        if !digits_match(&text, code).await? {
            return Err(Failure::message("These are not the digits that the new device shows. Nothing was added."));
        }
        let role = role(self.role, request.kind);
        let machine = match role {
            Role::Machine => Some(register(me, &request.name).await?),
            _ => None,
        };
        let name = add(context, me, code, &request, (role, machine.clone())).await?;
        if context.json {
            let added = serde_json::json!({ "publicKey": request.public_key, "role": role, "machineId": machine });
            print::json(&added, false)?;
        } else if role == Role::Machine {
            print::line(format!("Added {name} as a machine. `ensemble runner` on it runs tasks."))?;
        } else {
            print::line(format!("Added {name} as a {} device.", role.as_str()))?;
        }
        Ok(DONE)
    }
}

/// Lists are signed by primary devices only.
pub(crate) fn check_primary(me: &Account) -> Result<()> {
    if me.own().list.device(&me.key.public_key()).is_some_and(|device| device.role == Role::Primary) {
        return Ok(());
    }
    Err(Failure::message(
        "This is a linked device, and only a primary one can add and remove devices. Run the command on a primary device: \
         `ensemble devices` shows them.",
    ))
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

/// Shows the code. It goes to standard error, because it is for a person and not a result.
fn show(code: &LinkCode) -> Result<()> {
    let address = code.address();
    let picture = QrCode::new(address.as_bytes()).map_err(|error| Failure::message(format!("No QR code: {error}.")))?;
    // Dark on light, whatever the colours of the terminal are, as cameras need it.
    let picture = picture.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
    print::note(format!("{picture}\n\nScan it with the new device, or run `ensemble login --link` there and type:\n"));
    print::note(format!("{}\n\nIt is a secret, and works once, for ten minutes.", address.as_str()));
    Ok(())
}

/// Waits until a device asks. `None`: the time is over.
async fn asked(me: &Account, id: &str) -> Result<Option<DeviceLinkRequest>> {
    let begun = Instant::now();
    loop {
        let link = me.client.device_link(id, ONE_WAIT).await?;
        match (link.state, link.request) {
            (DeviceLinkState::Asked, Some(request)) => return Ok(Some(request)),
            (DeviceLinkState::Waiting, _) if begun.elapsed() < LONGEST => {}
            (DeviceLinkState::Waiting | DeviceLinkState::Expired, _) => return Ok(None),
            _ => return Err(Failure::message("The linking has ended. Run `ensemble link` again.")),
        }
    }
}

async fn digits_match(text: &LinkText, code: &LinkCode) -> Result<bool> {
    let expected = text.digits(code.secret());
    for left in (0..TRIES).rev() {
        print::ask("Type the six digits that the new device shows:")?;
        let Some(typed) = typed_line().await? else { return Ok(false) };
        let typed: String = typed.chars().filter(char::is_ascii_digit).collect();
        if expected.as_deref() == Some(&*typed) {
            return Ok(true);
        }
        if left > 0 {
            print::note(format!("These are not the digits. {left} more tries."));
        }
    }
    Ok(false)
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

/// The device on whose computer a machine is, if the machine names one of this account. Both are removed together.
fn computer(me: &Account, role: Role, request: &DeviceLinkRequest) -> Option<String> {
    let by = request.by.as_ref().filter(|_| role == Role::Machine)?;
    let is_person = me.own().list.device(by).is_some_and(|device| device.role.shares_sessions());
    if !is_person {
        print::note(
            "This machine's computer is not a device of your account, so removing a device will not remove the machine.",
        );
    }
    is_person.then(|| by.to_string())
}

/// Signs the list with the new device, and tells it the account. Returns the name of the device.
async fn add(
    context: &Context,
    me: &Account,
    code: &LinkCode,
    request: &DeviceLinkRequest,
    (role, machine_id): (Role, Option<MachineId>),
) -> Result<String> {
    let mut next = me.own().list.successor(now());
    let (key, box_key) = (request.public_key.to_string(), request.box_key.to_string());
    let by = computer(me, role, request);
    let mut entry = ListedDevice { key, box_key, role, machine_id, name: None, by };
    let mut names = me.names().await?;
    names.give(&mut entry, if request.name.trim().is_empty() { request.kind.as_str() } else { &request.name });
    if names.lacks_some() {
        print::note(
            "The server keeps back names of your devices, so this one gets none now. If it stays so, do not trust this server.",
        );
    }
    let name = names.get(&request.public_key).map_or_else(|| request.name.to_string(), str::to_owned);
    next.devices.push(entry);
    let (list, names) = next_list(&me.own().list, next, names, &me.key)?;
    let answer = DeviceLinkAnswer {
        user_id: me.id,
        account: list.body().account.clone(),
        version: list.version(),
        digest: list.digest_text(),
    };
    let sealed = code.seal_answer(&answer).map_err(|error| Failure::Seal("The answer".to_owned(), error))?;
    let mut change = change(&list, &me.own().contents, [], names)?;
    let too_long = |_| Failure::message("The answer to the new device is too long.");
    change.link = Some(CompletedDeviceLink {
        id: Blob::new(code.id.clone()).map_err(too_long)?,
        answer: Blob::new(sealed).map_err(too_long)?,
    });
    // It vouches for the device, should the server be restored from a backup.
    let id = Blob::new(code.id.clone()).map_err(too_long)?;
    let links = vec![PastDeviceLink { id, request: request.clone() }];
    kept_lists::send(&context.home, &me.client, (&me.key, me.id), &list, (&change, links)).await?;
    Ok(print::inline(&name))
}
