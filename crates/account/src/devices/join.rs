//! What a new device does to be added to an account, as a device of a person or as a machine.
//!
//! It makes its keys and asks, a person compares six digits, and it checks what the first device answers before it relies on anything. Its
//! key is on disk before it asks, so a program that is killed can go on.

use std::time::{Duration, Instant};

use ensemble_client::devices::LinkText;
use ensemble_client::{Client, Credential, Known, Token};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::LinkCode;
use ensemble_types::devices::{DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceLinkState, ListedDevice};
use ensemble_types::ids::MachineId;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use serde::{Deserialize, Serialize};

use super::link::{LONGEST, ONE_WAIT};
use super::{List, Own, box_of, own, shortened};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::settings::{LinkedMachine, Occasion};
use crate::store::Lock;

/// A computer that is to be added. No other program makes a key here meanwhile.
pub struct Joining {
    home: Home,
    kind: DeviceKind,
    lock: Lock,
}

/// A request that the server has.
pub struct Asked<'a> {
    joining: &'a Joining,
    client: Client,
    code: LinkCode,
    key: AccountKey,
}

/// A device that an account has added, with what it has checked.
pub struct Joined<'a> {
    joining: &'a Joining,
    client: Client,
    key: AccountKey,
    token: Token,
    list: List,
    entry: ListedDevice,
}

impl Joining {
    /// Errors of a person's device: there is an account key here already.
    pub async fn begin(home: &Home, kind: DeviceKind) -> Result<Self> {
        let lock = home.lock_account().await?;
        if kind != DeviceKind::Runner {
            home.check_no_key()?;
        }
        home.check_writable()?;
        Ok(Self { home: home.clone(), kind, lock })
    }

    /// The code of a linking that a killed program has begun.
    pub fn interrupted(&self) -> Option<LinkCode> {
        self.home.pending(self.kind)?.1
    }

    /// Resumes that linking. `None`: it has ended.
    pub async fn resume(&self, client: Client) -> Result<Option<Asked<'_>>> {
        let Some((key, Some(code))) = self.home.pending(self.kind) else { return Ok(None) };
        match client.device_link(&code.id, Duration::ZERO).await {
            Ok(link) if matches!(link.state, DeviceLinkState::Asked | DeviceLinkState::Approved) => {
                return Ok(Some(Asked { joining: self, client, code, key }));
            }
            Err(error) if !error.is_not_found() => return Err(error.into()),
            // The server may have forgotten it.
            _ => self.home.forget_pending()?,
        }
        Ok(None)
    }

    /// Asks to be added with this code. `client` has the code's address.
    pub async fn ask(&self, client: Client, code: LinkCode) -> Result<Asked<'_>> {
        let key = AccountKey::generate();
        self.home.keep_pending(&key, self.kind, Some(&code))?;
        let asked = Asked { joining: self, client, code, key };
        if let Err(error) = asked.client.ask_to_link(&asked.code.id, &asked.request()?).await {
            self.home.forget_pending()?;
            return Err(match error.code() {
                Some(Code::Conflict) => Error::CodeUsed,
                Some(code) if code.status() == 404 => Error::CodeUnknown,
                _ => error.into(),
            });
        }
        Ok(asked)
    }
}

impl<'a> Asked<'a> {
    fn request(&self) -> Result<DeviceLinkRequest> {
        let Self { joining: Joining { home, kind, .. }, code, key, .. } = self;
        let part = |error: String| Error::Form(format!("The request {error}."));
        let blob43 = |text: String| Blob::<43, 43>::new(text).map_err(|error| part(error.to_string()));
        let is_machine = *kind == DeviceKind::Runner;
        let by = if is_machine { home.key()?.map(|key| blob43(key.public_key())).transpose()? } else { None };
        let computer = home.computer();
        let name = match shortened(if is_machine { computer.host() } else { computer.device() }) {
            Some(name) => name,
            None => Text::new("").map_err(|error| part(error.to_string()))?,
        };
        let placeholder = |length: usize| "A".repeat(length);
        let mut request = DeviceLinkRequest {
            public_key: blob43(key.public_key())?,
            box_key: blob43(box_of(key)?.public().to_text())?,
            name,
            kind: *kind,
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

    /// The six digits that a person types on the other device.
    pub fn digits(&self) -> Result<String> {
        let text = LinkText::of(&self.code.base, &self.code.id, &self.request()?);
        text.digits(self.code.secret()).ok_or_else(|| Error::Form("The digits could not be computed.".to_owned()))
    }

    /// Waits for the answer, and checks it.
    pub async fn answered(self) -> Result<Joined<'a>> {
        let answer = approved(&self.client, &self.code).await?;
        let Self { joining, client, key, .. } = self;
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
        let (list, entry) = checked.ok_or(Error::OtherDevicesThanAdded)?;
        Ok(Joined { joining, client, key, token, list, entry })
    }
}

async fn approved(client: &Client, code: &LinkCode) -> Result<DeviceLinkAnswer> {
    let begun = Instant::now();
    loop {
        let link = client.device_link(&code.id, ONE_WAIT).await?;
        match (link.state, link.answer) {
            (DeviceLinkState::Approved, Some(answer)) => {
                return code.open_answer(&answer).map_err(|error| Error::Seal("The answer".to_owned(), error));
            }
            (DeviceLinkState::Asked | DeviceLinkState::Waiting, _) if begun.elapsed() < LONGEST => {}
            (DeviceLinkState::Refused, _) => return Err(Error::LinkRefused),
            _ => return Err(Error::LinkNotFinished),
        }
    }
}

impl Joined<'_> {
    /// Makes this computer a device of the account.
    pub async fn into_account(self) -> Result<Account> {
        let Self { joining, client, key, token, list, entry } = self;
        if entry.machine_id.is_some() {
            return Err(Error::AddedAsMachine);
        }
        joining.home.keep_new_device(client, key, (&list, &token), &joining.lock).await
    }

    /// Makes this computer a machine of the account, which it does not open. Returns the server's address.
    pub fn into_machine(self) -> Result<(String, MachineId)> {
        let Self { joining: Joining { home, .. }, client, key, token, list, entry } = self;
        let machine = entry.machine_id.ok_or(Error::AddedAsDevice)?;
        let server = client.base().as_str().trim_end_matches('/').to_owned();
        home.write_key(&home.linked_key_path(client.origin(), &machine), &key)?;
        home.remember_list(client.origin(), token.user_id, &list)?;
        let linked = LinkedMachine { server: server.clone(), owner: token.user_id, machine: machine.clone() };
        home.change_settings(|settings| {
            settings.server.get_or_insert_with(|| server.clone());
            settings.linked_machines.insert(client.origin().to_owned(), linked);
        })?;
        home.forget_pending()?;
        Ok((server, machine))
    }
}

/// A key that may be in a list already, or soon, and is not this computer's own yet. It is on disk before the server learns of it, because a
/// key that is listed and lost cannot be replaced by itself.
#[derive(Serialize, Deserialize)]
struct Pending {
    key: String,
    kind: DeviceKind,
    /// The address of a linking.
    address: Option<String>,
}

const PENDING: &str = "pending.json";

impl Home {
    pub(super) fn check_no_key(&self) -> Result<()> {
        if self.key()?.is_some() { Err(Error::HasKey(self.key_path())) } else { Ok(()) }
    }

    /// The key of this kind that a killed program has made, and the code of its linking.
    pub(super) fn pending(&self, kind: DeviceKind) -> Option<(AccountKey, Option<LinkCode>)> {
        let pending = self.read_json::<Pending>(PENDING).ok().flatten().filter(|pending| pending.kind == kind)?;
        let code = pending.address.and_then(|address| LinkCode::from_address(&address).ok());
        Some((AccountKey::from_text(&pending.key)?, code))
    }

    pub(super) fn keep_pending(&self, key: &AccountKey, kind: DeviceKind, code: Option<&LinkCode>) -> Result<()> {
        let address = code.map(|code| code.address().to_string());
        self.write_json(PENDING, &Pending { key: key.to_text().to_string(), kind, address })
    }

    pub(super) fn forget_pending(&self) -> Result<()> {
        self.remove(PENDING)
    }

    /// Keeps the key of a device that its account has in this list, and opens the account.
    pub(super) async fn keep_new_device(
        &self,
        client: Client,
        key: AccountKey,
        (list, token): (&List, &Token),
        lock: &Lock,
    ) -> Result<Account> {
        self.remember_list(&self.place(client.origin(), token.user_id)?, token.user_id, list)?;
        self.remember(&client, &key, token, Occasion::Login)?;
        // The key comes last: a computer that has one knows its account.
        self.store_key(&key, lock)?;
        self.forget_pending()?;
        let own: Own = own(self, &client, &key, token.user_id).await?;
        Account::new(self, client, key, token.user_id, own)
    }
}
