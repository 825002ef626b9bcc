//! What a new device does to be added to an account: `ensemble login --link` for a person, `ensemble runner link` for a machine.
//!
//! It makes its keys and asks, shows six digits, and checks what the first device answers before it relies on anything. Its key
//! is on disk before it asks, so a command that is killed can be run again.

use std::io::{self, BufRead, IsTerminal};
use std::time::{Duration, Instant};

use ensemble_account::devices::{self, List, box_of, shortened};
use ensemble_account::settings::{LinkedMachine, Occasion};
use ensemble_account::{Account, Lock};
use ensemble_client::devices::LinkText;
use ensemble_client::{Client, Credential, Known, Token};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::LinkCode;
use ensemble_types::devices::{DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceLinkState, ListedDevice};
use ensemble_types::ids::MachineId;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use secrecy::zeroize::Zeroizing;
use serde::{Deserialize, Serialize};

use super::link::{LONGEST, ONE_WAIT};
use crate::context::{Context, anonymous};
use crate::failure::{Failure, Result};
use crate::home::{Home, host};
use crate::print;

/// A device that an account has added, with what it has checked.
struct Joined {
    client: Client,
    key: AccountKey,
    token: Token,
    list: List,
    entry: ListedDevice,
}

/// Makes this computer a device of an account.
pub(crate) async fn as_device(context: &Context) -> Result<Account> {
    let lock = context.home.lock_account().await?;
    if context.home.key()?.is_some() {
        return Err(Failure::message(format!(
            "There is a key of an account already, in {}. Move it to a safe place first, if this computer is to have another \
             account.",
            context.home.key_path().display()
        )));
    }
    let Joined { client, key, token, list, entry } = join(context, DeviceKind::Cli, &lock).await?;
    if entry.machine_id.is_some() {
        return Err(Failure::message(
            "The other device has added this one as a machine. Use `ensemble runner link` for that.",
        ));
    }
    // The key comes last: a computer that has one knows its account.
    context.home.remember_list(client.origin(), token.user_id, &list)?;
    context.home.remember(&client, &key, &token, Occasion::Login)?;
    context.home.store_key(&key, &lock)?;
    context.home.forget_pending()?;
    let own = devices::own(&context.home, &client, &key, token.user_id).await?;
    Ok(Account::new(&context.home, client, key, token.user_id, own))
}

/// Makes this computer a machine of an account that it does not open.
pub(crate) async fn as_machine(context: &Context) -> Result<(String, MachineId)> {
    let lock = context.home.lock_account().await?;
    let Joined { client, key, token, list, entry } = join(context, DeviceKind::Runner, &lock).await?;
    let Some(machine) = entry.machine_id else {
        return Err(Failure::message(
            "The other device has added this one as a device and not as a machine. Remove it there with `ensemble devices remove`.",
        ));
    };
    let server = client.base().as_str().trim_end_matches('/').to_owned();
    let path = context.home.linked_key_path(client.origin(), &machine);
    context.home.write_key(&path, &key)?;
    context.home.remember_list(client.origin(), token.user_id, &list)?;
    let linked = LinkedMachine { server: server.clone(), owner: token.user_id, machine: machine.clone() };
    context.home.change_settings(|settings| {
        settings.server.get_or_insert_with(|| server.clone());
        settings.linked_machines.insert(client.origin().to_owned(), linked);
    })?;
    context.home.forget_pending()?;
    Ok((server, machine))
}

/// Asks to be added, and waits for the answer. Goes on where a command was killed.
async fn join(context: &Context, kind: DeviceKind, _lock: &Lock) -> Result<Joined> {
    context.home.check_writable()?;
    if let Some((key, Some(code))) = context.home.pending(kind) {
        let client = anonymous(code.base.clone())?;
        match client.device_link(&code.id, Duration::ZERO).await {
            Ok(link) if matches!(link.state, DeviceLinkState::Asked | DeviceLinkState::Approved) => {
                print::note("Going on with the linking that was interrupted.");
                return finish(context, client, &code, key, kind).await;
            }
            // It has ended, or the server has forgotten it.
            Ok(_) => context.home.forget_pending()?,
            Err(error) if error.is_not_found() => context.home.forget_pending()?,
            Err(error) => return Err(error.into()),
        }
    }
    let code = typed_code()?;
    let client = anonymous(code.base.clone())?;
    let key = AccountKey::generate();
    context.home.keep_pending(&key, kind, Some(&code))?;
    let asked = client.ask_to_link(&code.id, &request(context, &code, &key, kind)?).await;
    if let Err(error) = asked {
        context.home.forget_pending()?;
        return Err(match error.code() {
            Some(Code::Conflict) => Failure::message(
                "This code was used already. If it was not you, end `ensemble link` on the other device and begin again.",
            ),
            Some(code) if code.status() == 404 => {
                Failure::message("The server does not know this code: it is wrong, or older than ten minutes.")
            }
            _ => error.into(),
        });
    }
    finish(context, client, &code, key, kind).await
}

async fn finish(
    context: &Context,
    client: Client,
    code: &LinkCode,
    key: AccountKey,
    kind: DeviceKind,
) -> Result<Joined> {
    let digits = LinkText::of(&code.base, &code.id, &request(context, code, &key, kind)?).digits(code.secret());
    let digits = digits.ok_or_else(|| Failure::message("The digits could not be computed."))?;
    let (first, last) = digits.split_at(3);
    print::note(format!("Type these digits on the other device: {first} {last}"));
    let answer = approved(&client, code).await?;
    let client = client.with_credential(Credential::Device(key.clone()));
    let token = client.sign_in().await?;
    let vouched = Known::Vouched { account: &answer.account, version: answer.version, digest: &answer.digest };
    let list = client.newest_list(answer.user_id, vouched).await?;
    let boxed = box_of(&key)?.public().to_text();
    let own = |list: &List| list.device(&key.public_key()).filter(|own| own.box_key == boxed).cloned();
    let checked = list.and_then(|list| {
        let entry = own(&list)?;
        (token.user_id == answer.user_id && list.version() >= answer.version).then_some((list, entry))
    });
    let Some((list, entry)) = checked else {
        return Err(Failure::message(
            "The server shows other devices than the device that added this one. Nothing was kept. Do not trust this server.",
        ));
    };
    Ok(Joined { client, key, token, list, entry })
}

/// A key that may be in a list already, or soon, and is not this computer's own yet. It is on disk before the server learns of
/// it, because a key that is listed and lost cannot be replaced by itself.
#[derive(Serialize, Deserialize)]
struct Pending {
    key: String,
    kind: DeviceKind,
    /// The address of a linking.
    address: Option<String>,
}

const PENDING: &str = "pending.json";

impl Home {
    /// The key of this kind that a killed command has made, and the address of its linking.
    pub(crate) fn pending(&self, kind: DeviceKind) -> Option<(AccountKey, Option<LinkCode>)> {
        let pending = self.read_json::<Pending>(PENDING).ok().flatten().filter(|pending| pending.kind == kind)?;
        let code = pending.address.and_then(|address| LinkCode::from_address(&address).ok());
        Some((AccountKey::from_text(&pending.key)?, code))
    }

    pub(crate) fn keep_pending(&self, key: &AccountKey, kind: DeviceKind, code: Option<&LinkCode>) -> Result<()> {
        let pending =
            Pending { key: key.to_text().to_string(), kind, address: code.map(|code| code.address().to_string()) };
        Ok(self.write_json(PENDING, &pending)?)
    }

    pub(crate) fn forget_pending(&self) -> Result<()> {
        Ok(self.remove(PENDING)?)
    }
}

/// The code is a secret, so it is not shown while it is typed, and is never an argument.
fn typed_code() -> Result<LinkCode> {
    let stdin = io::stdin();
    let typed = if stdin.is_terminal() {
        print::ask(
            "The address that `ensemble link`, or Add a device in the web app, shows (what you type is not shown):",
        )?;
        let typed = without_echo()?;
        print::note("");
        typed
    } else {
        let mut line = Zeroizing::new(String::new());
        stdin.lock().read_line(&mut line)?;
        line
    };
    if typed.trim().is_empty() {
        return Err(Failure::message(
            "No address was typed. A primary device of the account shows it: `ensemble link`, or Settings, Add a device, in the web app.",
        ));
    }
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

fn request(context: &Context, code: &LinkCode, key: &AccountKey, kind: DeviceKind) -> Result<DeviceLinkRequest> {
    let part = |error: String| Failure::message(format!("The request {error}."));
    let blob43 = |text: String| Blob::<43, 43>::new(text).map_err(|error| part(error.to_string()));
    let is_machine = kind == DeviceKind::Runner;
    let by = if is_machine { context.home.key()?.map(|key| blob43(key.public_key())).transpose()? } else { None };
    let name = match shortened(&if is_machine { host() } else { context.home.computer().device.clone() }) {
        Some(name) => name,
        None => Text::new("").map_err(|error| part(error.to_string()))?,
    };
    let placeholder = |length: usize| "A".repeat(length);
    let mut request = DeviceLinkRequest {
        public_key: blob43(key.public_key())?,
        box_key: blob43(box_of(key)?.public().to_text())?,
        name,
        kind,
        by,
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
