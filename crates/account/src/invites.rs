//! Invitations: one link brings one person into one session.
//!
//! The link has a secret that the server never has. With it each side shows the other who it is, so no one compares fingerprints.

use std::time::Duration;

use ensemble_client::devices::Known;
use ensemble_client::{Client, Error as ClientError};
use ensemble_protocol::lists::{ClaimText, is_claim};
pub use ensemble_protocol::seal::{InviteAnswer, InviteCode};
use ensemble_protocol::seal::{SealError, new_secret};
use ensemble_protocol::transcript::words::May;
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::UserId;
use ensemble_types::invites::{Admission, AnswerInvite, ClaimInvite, CreateInvite, Invite, InviteClaim, InviteState};
use ensemble_types::line::inline;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::ShareLevel;
use ensemble_types::text::Blob;
use tokio::time::sleep;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::sessions::host_of;

/// How long one call waits.
const ONE_WAIT: Duration = Duration::from_secs(25);
/// A server that ends answers at once. An invitation lasts longer than an outage.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The longest name of a guest, in bytes.
pub const LONGEST_NAME: usize = 64;

/// An invitation of this account.
pub struct Inviting<'a> {
    me: &'a Account,
    code: InviteCode,
}

/// Someone who has claimed an invitation with its secret.
pub struct Guest {
    pub user: UserId,
    /// What they call themselves, fit to be shown.
    pub name: String,
}

impl Account {
    /// Makes an invitation into a session that can be claimed for this long. `origin` is the address at which the guest reaches the server.
    pub async fn invite(&self, session: &Session, origin: &str, lifetime: Duration) -> Result<Inviting<'_>> {
        if session.access_level != AccessLevel::Owner {
            return Err(Error::Form("Only the owner of a session invites people into it.".to_owned()));
        }
        self.refuse_demo(session).await?;
        let secret = new_secret();
        let digest = InviteCode::admission_digest(&secret).map_err(|error| sealing("The invitation", error))?;
        let admission = Blob::new(digest).map_err(|_| too_long("invitation"))?;
        let expires_at = self.client.now().plus(lifetime);
        let made = self.client.create_invite(&CreateInvite { admission, expires_at }).await?;
        Ok(Inviting { me: self, code: InviteCode::with_secret(origin, &made.id, secret) })
    }

    /// Claims an invitation under this name. The same account may do so again.
    pub async fn claim(&self, code: &InviteCode, name: &str) -> Result<()> {
        let list = self.own().list.clone();
        let (account, digest) = (list.body().account.clone(), list.digest_text());
        let text = ClaimText::new(&code.base, &code.id, (self.id, &account), (list.version(), &digest), name);
        let mac = text.mac(code.secret()).ok_or_else(|| too_long("claim"))?;
        let claim = ClaimInvite {
            name: Blob::new(name).map_err(|_| Error::Form(format!("A name has 1 to {LONGEST_NAME} bytes.")))?,
            version: list.version(),
            digest: Blob::new(digest).map_err(|_| too_long("claim"))?,
            mac: Blob::new(mac).map_err(|_| too_long("claim"))?,
            signature: Blob::new(self.key.sign(text.as_bytes())).map_err(|_| too_long("claim"))?,
        };
        self.client.claim_invite(&code.id, &claim).await?;
        Ok(())
    }

    /// Waits until the claim is answered. The owner whom the answer names is the one whom this account trusts from now on.
    pub async fn answered(&self, code: &InviteCode) -> Result<InviteAnswer> {
        let sealed = loop {
            let invite = waited(&self.client, &code.id).await?;
            match (invite.state, invite.answer) {
                (InviteState::Answered, Some(answer)) => break answer,
                (InviteState::Open | InviteState::Claimed, _) => sleep(BETWEEN_LOOKS).await,
                (state, _) => return Err(over(state)),
            }
        };
        let answer = code.open_answer(&sealed).map_err(|error| sealing("The answer", error))?;
        self.vouched((answer.owner, &answer.account), (answer.version, &answer.digest)).await?;
        // The server could give the session of someone else under this id.
        if self.client.session(answer.session).await?.owner_id != answer.owner {
            return Err(Error::OtherAccountThanInvited);
        }
        Ok(answer)
    }

    /// Remembers the account key of a user whom the holder of a secret has named, if the user's lists begin with it and have that version.
    async fn vouched(&self, (user, account): (UserId, &str), (version, digest): (u32, &str)) -> Result<()> {
        let shown = self.client.user(user).await?.public_key;
        let list = match self.client.newest_list(user, Known::Vouched { account, version, digest }).await {
            Ok(Some(list)) if list.version() >= version => list,
            Ok(_) | Err(ClientError::DeviceList(_) | ClientError::OldDeviceList) => {
                return Err(Error::OtherAccountThanInvited);
            }
            Err(error) => return Err(error.into()),
        };
        // It is compared before it is remembered.
        if shown != account || self.account_of(user).await? != account {
            return Err(Error::OtherAccountThanInvited);
        }
        self.home.remember_list(self.place(), user, &list)
    }
}

impl Inviting<'_> {
    pub fn code(&self) -> &InviteCode {
        &self.code
    }

    /// Waits until someone has claimed it. A claim that was not made with its secret ends it.
    pub async fn claimed(&self) -> Result<Guest> {
        let claim = loop {
            let invite = waited(&self.me.client, &self.code.id).await?;
            match (invite.state, invite.claim) {
                (InviteState::Claimed, Some(claim)) => break claim,
                // Claimed without a claim: the token had ended, and is renewed by the next call.
                (InviteState::Open | InviteState::Claimed, None) => sleep(BETWEEN_LOOKS).await,
                (InviteState::Expired, _) => return Err(Error::InviteNotUsed),
                (state, _) => return Err(over(state)),
            }
        };
        match self.checked(&claim).await {
            Err(error @ (Error::ClaimForged | Error::OtherAccountThanInvited)) => {
                self.end().await;
                Err(error)
            }
            guest => guest,
        }
    }

    async fn checked(&self, InviteClaim { claim, user_id, account, key }: &InviteClaim) -> Result<Guest> {
        let (code, guest) = (&self.code, (*user_id, account.as_str()));
        let text = ClaimText::of(&code.base, &code.id, guest, claim);
        let is_signed = is_claim([code.base.as_str()], &code.id, guest, key, claim);
        if !text.is_mac(code.secret(), &claim.mac) || !is_signed {
            return Err(Error::ClaimForged);
        }
        self.me.vouched(guest, (claim.version, &claim.digest)).await?;
        let is_listed =
            self.me.list_of(*user_id).await?.device(key).is_some_and(|device| device.role.shares_sessions());
        if !is_listed {
            return Err(Error::ClaimForged);
        }
        Ok(Guest { user: *user_id, name: inline(&claim.name) })
    }

    /// Answers the claim: seals for the guest which session it is, and whose. The session was shared before.
    pub async fn answer(&self, session: &Session, (level, may): (ShareLevel, Option<May>), name: &str) -> Result<()> {
        let list = self.me.own().list.clone();
        let machine = host_of(session).and_then(|host| {
            let of_host = |device: &&ListedDevice| device.machine_id.as_ref() == Some(host);
            list.body().devices.iter().find(of_host).map(|device| device.key.clone())
        });
        let answer = InviteAnswer {
            session: session.id,
            machine,
            owner: self.me.id,
            account: list.body().account.clone(),
            version: list.version(),
            digest: list.digest_text(),
            level,
            may,
            name: name.to_owned(),
        };
        let sealed = self.code.seal_answer(&answer).map_err(|error| sealing("The answer", error))?;
        let answer = Blob::new(sealed).map_err(|_| too_long("answer"))?;
        self.me.client.answer_invite(&self.code.id, &AnswerInvite { answer }).await?;
        Ok(())
    }

    /// Ends it: it can no longer be claimed.
    pub async fn end(&self) {
        let _ended_already = self.me.client.end_invite(&self.code.id).await;
    }
}

/// What lets this invitation make an account.
pub fn admission(code: &InviteCode) -> Result<Admission> {
    let admission = code.admission().map_err(|error| sealing("The invitation", error))?;
    let id = Blob::new(code.id.clone()).map_err(|_| too_long("invitation"))?;
    Ok(Admission { id, admission: Blob::new(admission.as_str()).map_err(|_| too_long("invitation"))? })
}

/// How an invitation stands before anything is done with it.
pub struct Standing {
    /// It only makes the first account of its server.
    pub is_first: bool,
    /// No one has claimed it.
    pub is_open: bool,
}

/// Looks at an invitation.
///
/// # Errors
/// It is over, or there is none.
pub async fn look(client: &Client, code: &InviteCode) -> Result<Standing> {
    let found = client.invite(&code.id, Duration::ZERO).await;
    let invite = found.map_err(|error| match error.is_not_found() {
        true => Error::InviteOver("the server does not know it"),
        false => error.into(),
    })?;
    match invite.state {
        InviteState::Open => Ok(Standing { is_first: invite.first, is_open: true }),
        InviteState::Claimed | InviteState::Answered => Ok(Standing { is_first: false, is_open: false }),
        state => Err(over(state)),
    }
}

/// An invitation, when it changes or after a while. A server that cannot be reached is asked again.
async fn waited(client: &Client, id: &str) -> Result<Invite> {
    loop {
        match client.invite(id, ONE_WAIT).await {
            Err(error) if error.may_pass() => sleep(BETWEEN_LOOKS).await,
            found => return Ok(found?),
        }
    }
}

fn over(state: InviteState) -> Error {
    Error::InviteOver(match state {
        InviteState::Ended => "its maker ended it",
        InviteState::Answered => "it was answered",
        _ => "its time is over",
    })
}

fn sealing(what: &str, error: SealError) -> Error {
    Error::Seal(what.to_owned(), error)
}

fn too_long(what: &str) -> Error {
    Error::Form(format!("The {what} is too long."))
}
