//! `ensemble link`: adds a device to the account, and `ensemble login --link` on the new device.
//!
//! The code is shown here and read there, the six digits are shown there and typed here. So both sides know that they talk to
//! each other, whatever the server between them does.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ensemble_client::devices::LinkText;
use ensemble_client::seal::LinkCode;
use ensemble_client::{AccountKey, Client, Credential, Known};
use ensemble_types::devices::{
    CompletedDeviceLink, DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceLinkState, ListedDevice, Role,
};
use ensemble_types::text::{Blob, Text};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use secrecy::zeroize::Zeroizing;

use super::DONE;
use crate::commands::machine::host;
use crate::context::{Context, Me, anonymous, now};
use crate::devices::{self, box_of, change, shortened, signed};
use crate::failure::{Failure, Result};
use crate::print;
use crate::settings::Occasion;

/// One call waits so long. A linking lasts ten minutes.
const ONE_WAIT: Duration = Duration::from_secs(25);
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// How often the digits may be typed.
const TRIES: usize = 3;

/// Adds a device to your account: shows a code for it, and asks for the six digits that the new device shows.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// What the device may do. A primary device can add and remove devices, a linked one cannot
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Kind>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Primary,
    Linked,
}

impl Link {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        check_primary(&me)?;
        let created = me.client.create_device_link().await?;
        let code = LinkCode::new(me.client.origin(), &created.id);
        show(&code)?;
        let request = match asked(&me, &created.id).await? {
            Some(request) => request,
            None => {
                return Err(Failure::message("Nobody used the code within ten minutes. Run `ensemble link` again."));
            }
        };
        let text = LinkText::of(&code.base, &code.id, &request);
        if !text.is_mac(code.secret(), &request.mac) {
            let _ = me.client.refuse_device_link(&created.id).await;
            return Err(Failure::message(
                "Somebody answered who had not seen the code, or changed what the new device sent. Nothing was added. If it \
                 happens again, do not trust the server.",
            ));
        }
        // Its name is shown later: it could be chosen to look like the digits.
        print::note(format!("A new device ({}) asks to be added.", described(request.kind)));
        if !digits_match(&text, &code)? {
            let _ = me.client.refuse_device_link(&created.id).await;
            return Err(Failure::message("These are not the digits that the new device shows. Nothing was added."));
        }
        let (name, role) = (print::inline(&request.name), role(self.role, request.kind));
        add(context, &me, &code, &request, role).await?;
        if context.json {
            print::json(&serde_json::json!({ "publicKey": request.public_key, "role": role }), false)?;
        } else {
            print::line(format!("Added {name} as a {} device.", role.as_str()))?;
        }
        Ok(DONE)
    }
}

/// Lists are signed by primary devices only.
pub(crate) fn check_primary(me: &Me) -> Result<()> {
    let own = me.own.list.device(&me.key.public_key());
    if own.is_some_and(|device| device.role == Role::Primary) {
        return Ok(());
    }
    Err(Failure::message(
        "This is a linked device, and only a primary one can add and remove devices. Run the command on a primary device: \
         `ensemble devices` shows them.",
    ))
}

fn role(wanted: Option<Kind>, kind: DeviceKind) -> Role {
    match (wanted, kind) {
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
    let mut out = io::stderr();
    writeln!(out, "{picture}\n\nScan it with the new device, or run `ensemble login --link` there and type:\n")?;
    writeln!(out, "{}\n\nIt is a secret, and works once, for ten minutes.", address.as_str())?;
    Ok(())
}

/// Waits until a device asks. `None`: the time is over.
async fn asked(me: &Me, id: &str) -> Result<Option<DeviceLinkRequest>> {
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

fn digits_match(text: &LinkText, code: &LinkCode) -> Result<bool> {
    let expected = text.digits(code.secret());
    for left in (0..TRIES).rev() {
        write!(io::stderr(), "Type the six digits that the new device shows: ")?;
        let mut typed = String::new();
        if io::stdin().lock().read_line(&mut typed)? == 0 {
            return Ok(false);
        }
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

/// Signs the list with the new device, and tells it the account.
async fn add(context: &Context, me: &Me, code: &LinkCode, request: &DeviceLinkRequest, role: Role) -> Result<()> {
    let mut next = me.own.list.successor(now());
    next.devices.push(ListedDevice {
        key: request.public_key.to_string(),
        box_key: request.box_key.to_string(),
        role,
        machine_id: None,
    });
    let list = me.own.list.next(&signed(&next, &me.key)?).map_err(ensemble_client::Error::from)?;
    let answer = DeviceLinkAnswer {
        user_id: me.id,
        account: list.body().account.clone(),
        version: list.version(),
        digest: list.digest_text(),
    };
    let sealed = code.seal_answer(&answer).map_err(|error| Failure::Seal("The answer".to_owned(), error))?;
    let mut change = change(&list, &me.own.contents, [(request.public_key.to_string(), request.name.to_string())])?;
    let too_long = |_| Failure::message("The answer to the new device is too long.");
    change.link = Some(CompletedDeviceLink {
        id: Blob::new(code.id.clone()).map_err(too_long)?,
        answer: Blob::new(sealed).map_err(too_long)?,
    });
    me.client.change_devices(&change).await?;
    context.home.remember_list(me.client.origin(), me.id, &list)
}

/// What the new device does: asks, shows six digits, and checks what the first device answers before it keeps anything.
pub(crate) async fn join(context: &Context) -> Result<Me> {
    let lock = context.home.lock_account().await?;
    if context.home.key()?.is_some() {
        return Err(Failure::message(format!(
            "There is a key of an account already, in {}. Move it to a safe place first, if this computer is to have another \
             account.",
            context.home.key_path().display()
        )));
    }
    context.home.check_writable()?;
    let code = typed_code()?;
    let client = anonymous(code.base.clone())?;
    let key = AccountKey::generate();
    let request = request(&code, &key)?;
    client.ask_to_link(&code.id, &request).await.map_err(|error| match error.code() {
        Some(ensemble_types::problem::Code::Conflict) => Failure::message(
            "This code was used already. If it was not you, end `ensemble link` on the other device and begin again.",
        ),
        Some(code) if code.status() == 404 => {
            Failure::message("The server does not know this code: it is wrong, or older than ten minutes.")
        }
        _ => error.into(),
    })?;
    let digits = LinkText::of(&code.base, &code.id, &request).digits(code.secret());
    let digits = digits.ok_or_else(|| Failure::message("The digits could not be computed."))?;
    let (first, last) = digits.split_at(3);
    print::note(format!("Type these digits on the other device: {first} {last}"));
    let answer = approved(&client, &code).await?;
    let client = client.with_credential(Credential::Device(key.clone()));
    let token = client.sign_in().await?;
    let vouched = Known::Vouched { account: &answer.account, version: answer.version, digest: &answer.digest };
    let list = client.newest_list(answer.user_id, vouched).await?;
    let boxed = box_of(&key)?.public().to_text();
    let is_good = token.user_id == answer.user_id
        && list.as_ref().is_some_and(|list| {
            list.version() >= answer.version && list.device(&key.public_key()).is_some_and(|own| own.box_key == boxed)
        });
    let Some(list) = list.filter(|_| is_good) else {
        return Err(Failure::message(
            "The server shows other devices than the device that added this one. Nothing was kept. Do not trust this server.",
        ));
    };
    context.home.store_key(&key, &lock)?;
    context.home.remember_list(client.origin(), answer.user_id, &list)?;
    context.home.remember(&client, &key, &token, Occasion::Login)?;
    let own = devices::own(context, &client, &key, answer.user_id).await?;
    Ok(Me { client, key, id: answer.user_id, own })
}

/// The code is a secret, so it is not shown while it is typed, and is never an argument.
fn typed_code() -> Result<LinkCode> {
    let stdin = io::stdin();
    let typed = if stdin.is_terminal() {
        write!(io::stderr(), "The address that `ensemble link` shows (it is not shown here): ")?;
        let typed = without_echo()?;
        writeln!(io::stderr())?;
        typed
    } else {
        let mut line = Zeroizing::new(String::new());
        stdin.lock().read_line(&mut line)?;
        line
    };
    LinkCode::from_address(&typed).map_err(|_| {
        Failure::message(
            "This is not the address that `ensemble link` shows: https://…/link#v1.… with 22 and 43 characters.",
        )
    })
}

pub(crate) fn without_echo() -> Result<Zeroizing<String>> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = io::stdin();
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(io::Error::from)?;
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before).map_err(io::Error::from)?;
    read?;
    Ok(line)
}

fn request(code: &LinkCode, key: &AccountKey) -> Result<DeviceLinkRequest> {
    let part = |error: String| Failure::message(format!("The request {error}."));
    let blob43 = |text: String| Blob::<43, 43>::new(text).map_err(|error| part(error.to_string()));
    let name = match shortened(&host()) {
        Some(name) => name,
        None => Text::new("").map_err(|error| part(error.to_string()))?,
    };
    let placeholder = |length: usize| "A".repeat(length);
    let mut request = DeviceLinkRequest {
        public_key: blob43(key.public_key())?,
        box_key: blob43(box_of(key)?.public().to_text())?,
        name,
        kind: DeviceKind::Cli,
        mac: blob43(placeholder(43))?,
        signature: Blob::new(placeholder(86)).map_err(|error| part(error.to_string()))?,
    };
    let text = LinkText::of(&code.base, &code.id, &request);
    let mac = text.mac(code.secret()).ok_or_else(|| part("could not be made".to_owned()))?;
    request.mac = blob43(mac)?;
    request.signature = Blob::new(key.sign(text.as_bytes())).map_err(|error| part(error.to_string()))?;
    Ok(request)
}

async fn approved(client: &Client, code: &LinkCode) -> Result<DeviceLinkAnswer> {
    let begun = Instant::now();
    loop {
        let link = client.device_link(&code.id, ONE_WAIT).await?;
        match (link.state, link.answer) {
            (DeviceLinkState::Approved, Some(answer)) => {
                return code.open_answer(&answer).map_err(|error| Failure::Seal("The answer".to_owned(), error));
            }
            (DeviceLinkState::Asked | DeviceLinkState::Waiting, _) if begun.elapsed() < LONGEST => {}
            (DeviceLinkState::Refused, _) => return Err(Failure::message("The other device refused this one.")),
            _ => return Err(Failure::message("The linking was not finished within ten minutes. Begin it again.")),
        }
    }
}
