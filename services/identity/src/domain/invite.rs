//! An invitation: someone claims it with its secret, and a device of its maker answers. It makes at most one account.

use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::invites::{self, InviteClaim, InviteState, OwnInvite};
use ensemble_types::time::Timestamp;
use sha2::{Digest, Sha256};

use super::encode;

/// The most invitations of one account that can be in use at once.
pub(crate) const MOST_OPEN_INVITES: i64 = 20;
/// The most that an account makes in [`DAY`].
pub(crate) const INVITES_A_DAY: i64 = 50;
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The longest life of an invitation.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A claim waits for its answer so long.
const ANSWERED_WITHIN: Duration = DAY;
/// How long the end of one can be read. A guest who was away reads an answer all the same.
const SHOWN_FOR: Duration = Duration::from_secs(3_600);
const ANSWER_SHOWN_FOR: Duration = LONGEST;

/// 128 random bits.
pub(crate) type InviteId = [u8; 16];

/// How far an invitation is, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InviteStep {
    Open,
    Claimed,
    Answered,
    Ended,
}

#[derive(Clone, Debug)]
pub(crate) struct Invite {
    pub(crate) id: InviteId,
    /// Who made it. `None`: the server itself, for its first account.
    pub(crate) user: Option<UserId>,
    /// SHA-256 of the admission.
    pub(crate) admission: [u8; 32],
    pub(crate) step: InviteStep,
    pub(crate) claim: Option<InviteClaim>,
    pub(crate) answer: Option<String>,
    /// It has made an account.
    pub(crate) is_admitted: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) shown_until: Timestamp,
}

/// The invitation is not in the state in which this can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InviteClosed {
    #[error("someone has used this invitation already")]
    Used,
    #[error("no one has claimed this invitation yet")]
    NotClaimed,
    #[error("this invitation only makes an account")]
    First,
    #[error("this invitation has ended")]
    Over,
}

impl InviteStep {
    pub(crate) const ALL: [Self; 4] = [Self::Open, Self::Claimed, Self::Answered, Self::Ended];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Claimed => "claimed",
            Self::Answered => "answered",
            Self::Ended => "ended",
        }
    }
}

impl Invite {
    /// `None`: it would live too long, or not at all.
    pub(crate) fn new(
        id: InviteId,
        user: Option<UserId>,
        admission: [u8; 32],
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Option<Self> {
        let is_good = expires_at > now && expires_at <= now.plus(LONGEST);
        is_good.then(|| Self {
            id,
            user,
            admission,
            step: InviteStep::Open,
            claim: None,
            answer: None,
            is_admitted: false,
            created_at: now,
            expires_at,
            shown_until: expires_at.plus(SHOWN_FOR),
        })
    }

    /// For the first account of a server.
    pub(crate) fn first(id: InviteId, admission: [u8; 32], now: Timestamp) -> Option<Self> {
        Self::new(id, None, admission, now, now.plus(LONGEST))
    }

    pub(crate) fn state(&self, now: Timestamp) -> InviteState {
        match self.step {
            InviteStep::Answered => InviteState::Answered,
            InviteStep::Ended => InviteState::Ended,
            _ if self.expires_at <= now => InviteState::Expired,
            InviteStep::Open => InviteState::Open,
            InviteStep::Claimed => InviteState::Claimed,
        }
    }

    /// Only one claims it, and once.
    pub(crate) fn claim(self, claim: InviteClaim, now: Timestamp) -> Result<Self, InviteClosed> {
        match self.state(now) {
            _ if self.user.is_none() => Err(InviteClosed::First),
            InviteState::Open => {
                let expires_at = now.plus(ANSWERED_WITHIN);
                let shown_until = expires_at.plus(SHOWN_FOR);
                Ok(Self { step: InviteStep::Claimed, claim: Some(claim), expires_at, shown_until, ..self })
            }
            InviteState::Claimed | InviteState::Answered => Err(InviteClosed::Used),
            InviteState::Ended | InviteState::Expired => Err(InviteClosed::Over),
        }
    }

    pub(crate) fn answer(self, answer: String, now: Timestamp) -> Result<Self, InviteClosed> {
        match self.state(now) {
            InviteState::Claimed => {
                let shown_until = now.plus(ANSWER_SHOWN_FOR);
                Ok(Self { step: InviteStep::Answered, answer: Some(answer), shown_until, ..self })
            }
            InviteState::Open => Err(InviteClosed::NotClaimed),
            // The answer to the call was lost on its way.
            InviteState::Answered if self.answer.as_ref() == Some(&answer) => Ok(self),
            _ => Err(InviteClosed::Over),
        }
    }

    /// Its maker ends it. Again is the same.
    pub(crate) fn end(self, now: Timestamp) -> Result<Self, InviteClosed> {
        match self.state(now) {
            InviteState::Answered => Err(InviteClosed::Over),
            InviteState::Ended | InviteState::Expired => Ok(self),
            InviteState::Open | InviteState::Claimed => {
                Ok(Self { step: InviteStep::Ended, shown_until: now.plus(SHOWN_FOR), ..self })
            }
        }
    }

    /// It makes an account for who has what is derived from its secret. `None`: it makes none.
    pub(crate) fn admit(self, admission: &[u8; 32], now: Timestamp) -> Option<Self> {
        let is_open = matches!(self.state(now), InviteState::Open | InviteState::Claimed);
        let is_good = Sha256::digest(admission).as_slice() == self.admission;
        (is_open && is_good && !self.is_admitted).then(|| {
            // One that only makes an account is over then.
            let step = if self.user.is_none() { InviteStep::Ended } else { self.step };
            Self { is_admitted: true, step, ..self }
        })
    }

    /// What a reader gets. Who has claimed it is for the account that made it.
    pub(crate) fn seen_by(self, reader: Option<UserId>, now: Timestamp) -> invites::Invite {
        let is_maker = reader.is_some() && reader == self.user;
        invites::Invite {
            state: self.state(now),
            first: self.user.is_none(),
            claim: self.claim.filter(|_| is_maker),
            answer: self.answer,
        }
    }

    /// What its maker gets in a list.
    pub(crate) fn listed(self, now: Timestamp) -> OwnInvite {
        OwnInvite { id: encode(&self.id), state: self.state(now), expires_at: self.expires_at, claim: self.claim }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::invites::ClaimInvite;
    use ensemble_types::text::Blob;

    use super::*;

    const HOUR: i64 = 3_600;
    const ADMISSION: [u8; 32] = [7; 32];

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(1_000 + seconds)
    }

    fn open(user: Option<UserId>) -> Invite {
        Invite::new([1; 16], user, Sha256::digest(ADMISSION).into(), at(0), at(HOUR)).unwrap()
    }

    fn claim() -> InviteClaim {
        let blob = || Blob::new("A".repeat(43)).unwrap();
        let signature = Blob::new("A".repeat(86)).unwrap();
        let claim = ClaimInvite { name: Blob::new("Bob").unwrap(), version: 1, digest: blob(), mac: blob(), signature };
        InviteClaim { claim, user_id: UserId::generate(), account: String::new(), key: String::new() }
    }

    #[test]
    fn an_invitation_is_claimed_once_and_answered_within_a_day() {
        use InviteState::{Answered, Claimed, Ended, Expired, Open};
        let open = open(Some(UserId::generate()));
        let claimed = open.clone().claim(claim(), at(HOUR - 1)).unwrap();
        let answered = claimed.clone().answer("sealed".to_owned(), at(2 * HOUR)).unwrap();
        let ended = claimed.clone().end(at(1)).unwrap();
        let states = |now| [&open, &claimed, &answered, &ended].map(|invite| invite.state(at(now)));
        assert_eq!(states(HOUR - 1), [Open, Claimed, Answered, Ended]);
        assert_eq!(states(HOUR), [Expired, Claimed, Answered, Ended], "who has claimed it waits longer");
        assert_eq!(states(25 * HOUR), [Expired, Expired, Answered, Ended]);
        assert_eq!(open.shown_until, at(2 * HOUR));
        assert_eq!(ended.shown_until, at(HOUR + 1));
        assert_eq!(answered.shown_until, at((2 + 7 * 24) * HOUR));

        let claims = |invite: &Invite, now| invite.clone().claim(claim(), at(now)).err();
        assert_eq!([claims(&claimed, 2), claims(&answered, 2)], [Some(InviteClosed::Used); 2]);
        assert_eq!([claims(&ended, 2), claims(&open, HOUR)], [Some(InviteClosed::Over); 2]);
        let answers = |invite: &Invite, now| invite.clone().answer(String::new(), at(now)).err();
        assert_eq!(answers(&open, 2), Some(InviteClosed::NotClaimed));
        for (invite, now) in [(&answered, 2), (&ended, 2), (&claimed, 25 * HOUR), (&open, HOUR)] {
            assert_eq!(answers(invite, now), Some(InviteClosed::Over));
        }
        assert_eq!(answered.end(at(3)).err(), Some(InviteClosed::Over));
        assert_eq!(ended.clone().end(at(9)).unwrap().shown_until, ended.shown_until);
    }

    #[test]
    fn an_invitation_lives_at_most_seven_days() {
        let new = |until| Invite::new([1; 16], None, [0; 32], at(0), at(until)).is_some();
        assert_eq!([0, 1, 7 * 24 * HOUR, 7 * 24 * HOUR + 1].map(new), [false, true, true, false]);
    }

    #[test]
    fn an_invitation_makes_one_account_for_who_has_its_secret() {
        let invite = open(Some(UserId::generate()));
        let admits = |invite: &Invite, admission, now| invite.clone().admit(admission, at(now));
        assert!(admits(&invite, &[8; 32], 1).is_none());
        assert!(admits(&invite, &ADMISSION, HOUR).is_none());
        let admitted = admits(&invite, &ADMISSION, 1).unwrap();
        assert!(admits(&admitted, &ADMISSION, 1).is_none());
        assert_eq!(admitted.clone().claim(claim(), at(2)).unwrap().step, InviteStep::Claimed);
        assert!(admits(&invite.clone().claim(claim(), at(1)).unwrap(), &ADMISSION, 1).is_some());
        assert!(admits(&invite.end(at(1)).unwrap(), &ADMISSION, 1).is_none());
        let first = open(None);
        assert_eq!(first.clone().claim(claim(), at(1)).err(), Some(InviteClosed::First));
        assert_eq!(admits(&first, &ADMISSION, 1).unwrap().state(at(1)), InviteState::Ended);
    }

    #[test]
    fn only_its_maker_sees_who_has_claimed_it() {
        let maker = UserId::generate();
        let claimed = open(Some(maker)).claim(claim(), at(0)).unwrap();
        let sees = |reader| claimed.clone().seen_by(reader, at(0)).claim.is_some();
        assert_eq!([sees(Some(maker)), sees(Some(UserId::generate())), sees(None)], [true, false, false]);
        assert!(open(None).seen_by(None, at(0)).first);
    }

    #[test]
    fn the_names_of_steps_are_those_in_stored_invitations() {
        assert_eq!(InviteStep::ALL.map(InviteStep::as_str), ["open", "claimed", "answered", "ended"]);
    }
}
