//! Invitations: one link brings one person into one session.
//!
//! The link has a secret that the server never has. With it each side shows the other who it is, so no one compares fingerprints.

mod kept;
mod own;

use std::time::Duration;

use ensemble_client::devices::Known;
use ensemble_client::{Client, Error as ClientError};
use ensemble_protocol::lists::ClaimText;
use ensemble_protocol::seal::SealError;
pub use ensemble_protocol::seal::{InviteAnswer, InviteCode};
use ensemble_types::ids::UserId;
use ensemble_types::invites::{Admission, ClaimInvite, Invite, InviteState};
use ensemble_types::text::Blob;
use tokio::time::sleep;

use crate::account::Account;
use crate::error::{Error, Result};

pub use self::kept::Turn;
pub(crate) use self::kept::forget_known;
pub use self::own::{Guest, Inviting, Listed};

/// How long one call waits.
const ONE_WAIT: Duration = Duration::from_secs(25);
/// A server that ends answers at once. An invitation lasts longer than an outage.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The longest name of a guest, in bytes.
pub const LONGEST_NAME: usize = 64;

impl Account {
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
