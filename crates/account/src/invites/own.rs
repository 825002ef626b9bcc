//! The owner's side: every device of the account can answer a claim.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_protocol::lists::{ClaimText, decode, encode, is_claim};
use ensemble_protocol::seal::{InviteAnswer, InviteCode, new_secret};
use ensemble_protocol::transcript::words::May;
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::invites::{AnswerInvite, CreateInvite, Invite, InviteClaim, InviteState, OwnInvite};
use ensemble_types::problem::Code;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::ShareLevel;
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;
use serde_json::Map;
use tokio::time::sleep;

use super::kept::{self, Kept, Turn};
use super::{BETWEEN_LOOKS, over, sealing, too_long, waited};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::pins::Shared;
use crate::sessions::host_of;

/// An invitation of this account that can be answered.
pub struct Inviting<'a> {
    me: &'a Account,
    code: InviteCode,
    pub session: SessionId,
    pub level: ShareLevel,
    pub may: Option<May>,
    /// A claim is answered until then, also where the server says that it is good.
    until: Timestamp,
}

/// Someone who has claimed an invitation with its secret.
pub struct Guest {
    pub user: UserId,
    /// What the account calls them from then on.
    pub name: String,
    account: String,
}

/// How an invitation into a session stands.
pub struct Listed {
    pub id: String,
    pub state: InviteState,
    pub expires_at: Timestamp,
    pub level: ShareLevel,
    pub may: Option<May>,
    /// The address of the server in it.
    pub base: String,
    /// Who has joined by it.
    pub user: Option<UserId>,
    /// What the one who has claimed it goes by.
    pub name: Option<String>,
}

impl Account {
    /// Makes an invitation into a session that can be claimed for this long, and lets the other devices of the account answer it. `origin` is
    /// the address at which the guest reaches the server.
    pub async fn invite(
        &self,
        session: &Session,
        origin: &str,
        lifetime: Duration,
        (level, may): (ShareLevel, Option<May>),
    ) -> Result<Inviting<'_>> {
        if session.access_level != AccessLevel::Owner {
            return Err(Error::Form("Only the owner of a session invites people into it.".to_owned()));
        }
        self.refuse_demo(session).await?;
        let secret = new_secret();
        let digest = InviteCode::admission_digest(&secret).map_err(|error| sealing("The invitation", error))?;
        let admission = Blob::new(digest).map_err(|_| too_long("invitation"))?;
        let now = self.client.now();
        let expires_at = now.plus(lifetime);
        let made = self.client.create_invite(&CreateInvite { admission, expires_at }).await?;
        let kept = Kept {
            secret: Some(encode(&*secret)),
            base: origin.trim_end_matches('/').to_owned(),
            session: session.id,
            level,
            may: may.clone(),
            expires_at: made.expires_at.min(expires_at),
            answering: None,
            user: None,
            more: Map::new(),
        };
        let code = InviteCode::with_secret(origin, &made.id, secret);
        let inviting = Inviting { me: self, code, session: session.id, level, may, until: kept.answered_until() };
        let add = |shared: &mut Shared| {
            let has_room = kept::add(shared, &made.id, &kept, now);
            (has_room, has_room)
        };
        let added = match self.change_shared(add).await {
            Ok((true, written)) => written.map_err(Error::from),
            Ok((false, _)) => {
                Err(Error::Form("20 invitations are open. End one: `ensemble share list` shows them.".to_owned()))
            }
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => Ok(inviting),
            Err(error) => {
                // No other device knows its secret, and no one has its address.
                let _unused = inviting.end().await;
                Err(error)
            }
        }
    }

    /// The invitations that this device can answer.
    pub async fn open_invites(&self) -> Result<Vec<Inviting<'_>>> {
        let shared = self.shared_state().await?;
        let open = kept::all(&shared).into_iter().filter_map(|(id, kept)| {
            let until = kept.answered_until();
            let secret: [u8; 32] = decode(&kept.secret?)?;
            let code = InviteCode::with_secret(&kept.base, &id, secret.into());
            Some(Inviting { me: self, code, session: kept.session, level: kept.level, may: kept.may, until })
        });
        Ok(open.collect())
    }

    /// Who waits for the answer of a device of this account. A forged claim has ended its invitation, and has the reason instead of a
    /// guest. One that cannot be checked now is left out.
    pub async fn claims(&self) -> Result<Vec<(Inviting<'_>, Result<Guest>)>> {
        let open = self.open_invites().await?;
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let mut shown = by_id(self.client.invites().await?);
        let mut claims = Vec::new();
        for inviting in open {
            // What the server has forgotten is over.
            let (state, claim) = shown
                .remove(&inviting.code.id)
                .map_or((InviteState::Expired, None), |shown| (shown.state, shown.claim));
            let invite = Invite { state, claim, answer: None, first: false };
            match inviting.guest(invite).await {
                Ok((_, Some(guest))) => claims.push((inviting, Ok(guest))),
                Err(error) if is_forged(&error) => claims.push((inviting, Err(error))),
                Ok((_, None)) | Err(_) => {}
            }
        }
        Ok(claims)
    }

    /// The invitations into a session, and how they stand.
    pub async fn invites_into(&self, session: SessionId) -> Result<Vec<Listed>> {
        let shared = self.shared_state().await?;
        let kept: BTreeMap<String, Kept> =
            kept::all(&shared).into_iter().filter(|(_, kept)| kept.session == session).collect();
        if kept.is_empty() {
            return Ok(Vec::new());
        }
        let mut people = kept::people(&shared);
        let mut shown = by_id(self.client.invites().await?);
        let listed = kept.into_iter().map(|(id, kept)| {
            let shown = shown.remove(&id);
            let claimed =
                shown.as_ref().and_then(|shown| shown.claim.as_ref()).map(|claim| kept::shown_name(&claim.claim.name));
            let joined = kept.user.and_then(|user| people.remove(&user)).map(|person| person.name);
            Listed {
                id,
                // The server has forgotten it.
                state: shown.map_or(InviteState::Expired, |shown| shown.state),
                expires_at: kept.expires_at,
                level: kept.level,
                may: kept.may,
                base: kept.base,
                user: kept.user,
                name: joined.or(claimed),
            }
        });
        Ok(listed.collect())
    }

    /// Ends the invitations into a session that no one has joined by. Gives their number.
    pub async fn end_invites(&self, session: SessionId) -> Result<usize> {
        let mut ended = 0;
        for inviting in self.open_invites().await?.into_iter().filter(|inviting| inviting.session == session) {
            inviting.end().await?;
            ended += 1;
        }
        Ok(ended)
    }

    /// The people whom this computer knows by name.
    fn names_here(&self) -> Result<BTreeMap<String, UserId>> {
        let names = self.home.settings()?.known_names.remove(self.place()).unwrap_or_default();
        Ok(names.into_iter().filter_map(|(name, user)| Some((kept::good_name(&name)?, user))).collect())
    }

    /// What this account calls people, with the keys of their accounts.
    pub(crate) async fn called(&self, user: UserId) -> Option<String> {
        kept::people(&self.shared_state().await.ok()?).remove(&user).map(|person| person.name)
    }

    /// The person whom this account calls so.
    ///
    /// # Errors
    /// The server shows another account for that person.
    pub async fn person_called(&self, name: &str) -> Result<Option<UserId>> {
        let Some(wanted) = kept::good_name(name).map(|name| name.to_lowercase()) else { return Ok(None) };
        let people = kept::people(&self.shared_state().await?);
        let Some((user, person)) = people.into_iter().find(|(_, person)| person.name.to_lowercase() == wanted) else {
            return Ok(None);
        };
        match self.account_of(user).await? == person.account {
            true => Ok(Some(user)),
            false => Err(Error::OtherKey(user)),
        }
    }
}

fn is_forged(error: &Error) -> bool {
    matches!(error, Error::ClaimForged | Error::OtherAccountThanInvited)
}

fn by_id(invites: Vec<OwnInvite>) -> BTreeMap<String, OwnInvite> {
    invites.into_iter().map(|invite| (invite.id.clone(), invite)).collect()
}

impl Inviting<'_> {
    pub fn code(&self) -> &InviteCode {
        &self.code
    }

    /// Waits until someone has claimed it. A claim that was not made with its secret ends it. `None`: another device has answered.
    pub async fn claimed(&self) -> Result<Option<Guest>> {
        loop {
            let invite = waited(&self.me.client, &self.code.id).await?;
            match self.guest(invite).await? {
                (InviteState::Open | InviteState::Claimed, None) => sleep(BETWEEN_LOOKS).await,
                (InviteState::Expired, _) => return Err(Error::InviteNotUsed),
                (InviteState::Ended, _) => return Err(over(InviteState::Ended)),
                (_, guest) => return Ok(guest),
            }
        }
    }

    /// How it stands, and who has claimed it and waits.
    async fn guest(&self, Invite { state, claim, .. }: Invite) -> Result<(InviteState, Option<Guest>)> {
        match (state, claim) {
            (InviteState::Open | InviteState::Claimed, _) if self.is_past() => {
                self.forget().await;
                Ok((InviteState::Expired, None))
            }
            // Claimed without a claim: the token had ended, and is renewed by the next call.
            (InviteState::Open | InviteState::Claimed, None) => Ok((state, None)),
            (InviteState::Open | InviteState::Claimed, Some(claim)) => match self.checked(claim).await {
                Ok(guest) => Ok((InviteState::Claimed, Some(guest))),
                Err(error) => {
                    if is_forged(&error) && self.end().await.is_err() {
                        // Without its secret no device answers it, whatever the server says.
                        self.forget().await;
                    }
                    Err(error)
                }
            },
            (InviteState::Answered, claim) => {
                self.note_answered(claim.map(|claim| claim.user_id)).await;
                Ok((state, None))
            }
            (InviteState::Ended | InviteState::Expired, _) => {
                self.forget().await;
                Ok((state, None))
            }
        }
    }

    /// Whether its time is over by one of the two clocks: the server's could stand still.
    fn is_past(&self) -> bool {
        self.until <= self.me.client.clock().both().1
    }

    async fn checked(&self, InviteClaim { claim, user_id, account, key }: InviteClaim) -> Result<Guest> {
        let (code, guest) = (&self.code, (user_id, account.as_str()));
        let text = ClaimText::of(&code.base, &code.id, guest, &claim);
        let is_signed = is_claim([code.base.as_str()], &code.id, guest, &key, &claim);
        if !text.is_mac(code.secret(), &claim.mac) || !is_signed {
            return Err(Error::ClaimForged);
        }
        self.me.vouched(guest, (claim.version, &claim.digest)).await?;
        let is_listed =
            self.me.list_of(user_id).await?.device(&key).is_some_and(|device| device.role.shares_sessions());
        if !is_listed {
            return Err(Error::ClaimForged);
        }
        let name = kept::name_for(&self.me.shared_state().await?, user_id, &claim.name, &self.me.names_here()?);
        Ok(Guest { user: user_id, name, account })
    }

    /// Whether the program that calls itself so answers the guest now. The guest has this name from then on.
    pub async fn take(&self, guest: &Guest, by: &str) -> Result<Turn> {
        if self.is_past() {
            self.forget().await;
            return Ok(Turn::Over);
        }
        let now = self.me.client.now();
        let here = self.me.names_here()?;
        let take = |shared: &mut Shared| {
            let guest = (guest.user, guest.account.as_str(), guest.name.as_str());
            let turn = kept::take(shared, &self.code.id, by, (guest, &here), now);
            (turn, turn == Turn::Mine)
        };
        let (turn, written) = self.me.change_shared(take).await?;
        written?;
        if turn != Turn::Mine {
            return Ok(turn);
        }
        // The one before may have answered and not noted it.
        let invite = self.me.client.invite(&self.code.id, Duration::ZERO).await?;
        Ok(if self.guest(invite).await?.1.is_some() { Turn::Mine } else { Turn::Over })
    }

    /// Answers the claim: seals for the guest which session it is, and whose. The session was shared before.
    pub async fn answer(&self, session: &Session, guest: &Guest, name: &str) -> Result<()> {
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
            level: self.level,
            may: self.may.clone(),
            name: name.to_owned(),
        };
        let sealed = self.code.seal_answer(&answer).map_err(|error| sealing("The answer", error))?;
        let answer = Blob::new(sealed).map_err(|_| too_long("answer"))?;
        self.me.client.answer_invite(&self.code.id, &AnswerInvite { answer }).await?;
        self.note_answered(Some(guest.user)).await;
        Ok(())
    }

    /// Ends it: it can no longer be claimed.
    pub async fn end(&self) -> Result<()> {
        match self.me.client.end_invite(&self.code.id).await {
            // It was answered, or is forgotten.
            Err(error) if !error.is_not_found() && !error.is(Code::Conflict) => Err(error.into()),
            Ok(()) | Err(_) => {
                self.forget().await;
                Ok(())
            }
        }
    }

    /// What is not written down now, the next device that looks at the invitation writes down.
    async fn note_answered(&self, user: Option<UserId>) {
        let note = |shared: &mut Shared| ((), kept::answered(shared, &self.code.id, user));
        let _later = self.me.change_shared(note).await;
    }

    async fn forget(&self) {
        let forget = |shared: &mut Shared| ((), kept::forget(shared, &self.code.id));
        let _later = self.me.change_shared(forget).await;
    }
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::AccountKey;

    use super::*;
    use crate::sessions::tests::user;

    fn inviting(me: &Account, until: Timestamp) -> Inviting<'_> {
        let code = InviteCode::with_secret("https://a", "AAAAAAAAAAAAAAAAAAAAAA", new_secret());
        Inviting { me, code, session: SessionId::generate(), level: ShareLevel::View, may: None, until }
    }

    #[tokio::test(start_paused = true)]
    async fn an_invitation_that_the_server_has_not_ended_is_not_said_to_have_ended() {
        let me = user(&AccountKey::generate());
        let error = inviting(&me, me.client.now()).end().await.unwrap_err();
        assert!(matches!(error, Error::Client(_)), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_invitation_ends_in_time_where_the_server_says_that_it_is_good() {
        let me = user(&AccountKey::generate());
        let now = me.client.now();
        let mut inviting = inviting(&me, now.plus(Duration::from_secs(600)));
        let shown = || Invite { state: InviteState::Open, claim: None, answer: None, first: false };
        assert_eq!(inviting.guest(shown()).await.unwrap().0, InviteState::Open);
        inviting.until = now;
        assert_eq!(inviting.guest(shown()).await.unwrap().0, InviteState::Expired);
        let guest = Guest { user: UserId::generate(), name: "Bob".to_owned(), account: String::new() };
        assert_eq!(inviting.take(&guest, "one").await.unwrap(), Turn::Over);
    }
}
