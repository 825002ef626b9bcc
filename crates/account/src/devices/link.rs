//! Adds a device to the account, or a machine: what the device does that is in it already.
//!
//! The code is shown here and read there, the six digits are shown there and typed here. So both sides know that they talk to each other,
//! whatever the server between them does.

use std::time::{Duration, Instant};

use ensemble_client::devices::LinkText;
use ensemble_protocol::seal::LinkCode;
use ensemble_types::devices::{
    CompletedDeviceLink, DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceLinkState, ListedDevice,
    PastDeviceLink, Role,
};
use ensemble_types::ids::MachineId;
use ensemble_types::line::inline;
use ensemble_types::text::Blob;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::notice::Notice;

/// How long one call waits. A linking lasts ten minutes.
pub(super) const ONE_WAIT: Duration = Duration::from_secs(25);
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 60);
/// How long a browser of this computer may take to ask without digits.
pub const HERE_WITHIN: Duration = Duration::from_secs(2 * 60);

/// A linking that has begun.
pub struct Linking<'a> {
    me: &'a Account,
    code: LinkCode,
    begun: Instant,
}

/// A device that asks to be added, and has seen the code.
pub struct NewDevice<'a> {
    me: &'a Account,
    code: &'a LinkCode,
    request: DeviceLinkRequest,
    digits: Option<String>,
    is_here: bool,
}

/// A device that was added.
pub struct Added {
    pub public_key: String,
    pub name: String,
    pub machine: Option<MachineId>,
}

impl Account {
    /// Begins a linking. `origin` is the address at which the new device reaches the server.
    pub async fn begin_linking(&self, origin: &str) -> Result<Linking<'_>> {
        self.check_primary()?;
        let created = self.client.create_device_link().await?;
        Ok(Linking { me: self, code: LinkCode::new(origin, &created.id), begun: Instant::now() })
    }
}

impl Linking<'_> {
    pub fn code(&self) -> &LinkCode {
        &self.code
    }

    /// Waits until a device asks.
    pub async fn asked(&self) -> Result<NewDevice<'_>> {
        self.asked_within(LONGEST).await
    }

    /// The same, for as long after the beginning.
    pub async fn asked_within(&self, longest: Duration) -> Result<NewDevice<'_>> {
        loop {
            let left = longest.saturating_sub(self.begun.elapsed());
            let link = self.me.client.device_link(&self.code.id, ONE_WAIT.min(left)).await?;
            match (link.state, link.request) {
                (DeviceLinkState::Asked, Some(request)) => return self.checked(request, link.local),
                (DeviceLinkState::Waiting, _) if !left.is_zero() => {}
                (DeviceLinkState::Waiting | DeviceLinkState::Expired, _) => return Err(Error::CodeNotUsed),
                _ => return Err(Error::LinkEnded),
            }
        }
    }

    /// `is_local`: the server says that the request came from its own computer.
    fn checked(&self, request: DeviceLinkRequest, is_local: bool) -> Result<NewDevice<'_>> {
        let Self { me, code, begun } = self;
        let text = LinkText::of(&code.base, &code.id, &request);
        if !text.is_mac(code.secret(), &request.mac) {
            return Err(Error::CodeNotSeen);
        }
        let is_of_here = is_local && me.client.is_on_loopback() && code.base == me.client.origin();
        let is_here = is_of_here && is_browser_in_time(request.kind, begun.elapsed());
        Ok(NewDevice { me, code, digits: text.digits(code.secret()), request, is_here })
    }

    /// Whether another device asks with the code within this time, half a minute at most. Only the first one counts.
    pub async fn is_asked_again(&self, within: Duration) -> bool {
        let link = self.me.client.device_link(&self.code.id, within.min(ONE_WAIT)).await;
        link.is_ok_and(|link| link.again)
    }

    /// Ends it: the code can no longer be used. Without an answer it ends by itself after ten minutes.
    pub async fn end(&self) {
        let _ended_already = self.me.client.refuse_device_link(&self.code.id).await;
    }
}

impl NewDevice<'_> {
    pub fn kind(&self) -> DeviceKind {
        self.request.kind
    }

    /// Whether a browser of this computer asks, which had the code in time: it needs no digits where only this user could give it the code.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether these are the digits that the new device shows. Spaces count for nothing.
    pub fn has_digits(&self, typed: &str) -> bool {
        let typed: String = typed.chars().filter(char::is_ascii_digit).collect();
        self.digits.as_deref() == Some(&*typed)
    }

    /// Signs the list with the new device, and tells it the account. A person has compared the digits, or none are needed
    /// ([`Self::is_here`]).
    pub async fn add(self, role: Role) -> Result<Added> {
        let Self { me, code, request, .. } = self;
        let machine = match role {
            Role::Machine => Some(me.register_linked(&request.name).await?),
            _ => None,
        };
        let own = me.own();
        let mut next = own.list.successor(me.client.now());
        let (key, box_key) = (request.public_key.to_string(), request.box_key.to_string());
        let by = computer(me, role, &request);
        let mut entry = ListedDevice { key, box_key, role, machine_id: machine.clone(), name: None, by };
        let mut names = me.names().await?;
        names.give(&mut entry, if request.name.trim().is_empty() { request.kind.as_str() } else { &request.name });
        if names.lacks_some() {
            me.say(Notice::NamesKeptBack);
        }
        let name = inline(names.get(&request.public_key).unwrap_or(&request.name));
        next.devices.push(entry);
        let mut next = me.sign_next(&own.list, (next, names), own.contents.clone(), None)?;
        let list = &next.own.list;
        let answer = DeviceLinkAnswer {
            user_id: me.id,
            account: list.body().account.clone(),
            version: list.version(),
            digest: list.digest_text(),
        };
        let sealed = code.seal_answer(&answer).map_err(|error| Error::Seal("The answer".to_owned(), error))?;
        let too_long = |_| Error::Form("The answer to the new device is too long.".to_owned());
        let id = Blob::new(code.id.clone()).map_err(too_long)?;
        let answer = Blob::new(sealed).map_err(too_long)?;
        next.change.link = Some(CompletedDeviceLink { id: id.clone(), answer });
        let public_key = request.public_key.to_string();
        me.send_next(next, vec![PastDeviceLink { id, request }]).await?;
        Ok(Added { public_key, name, machine })
    }
}

/// The device on whose computer a machine is, if the machine names one of this account. Both are removed together.
fn computer(me: &Account, role: Role, request: &DeviceLinkRequest) -> Option<String> {
    let by = request.by.as_ref().filter(|_| role == Role::Machine)?;
    let is_person = me.own().list.device(by).is_some_and(|device| device.role.shares_sessions());
    if !is_person {
        me.say(Notice::ComputerNotListed);
    }
    is_person.then(|| by.to_string())
}

fn is_browser_in_time(kind: DeviceKind, age: Duration) -> bool {
    kind == DeviceKind::Web && age < HERE_WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_browser_needs_no_digits_and_only_for_two_minutes() {
        let within = |seconds| is_browser_in_time(DeviceKind::Web, Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 600].map(within), [true, true, false, false]);
        for kind in [DeviceKind::Cli, DeviceKind::Runner, DeviceKind::Recovery] {
            assert!(!is_browser_in_time(kind, Duration::ZERO), "{kind:?}");
        }
    }
}
