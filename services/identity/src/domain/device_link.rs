//! A linking in progress: a new device asks, and a list of the account answers it. It ends after ten minutes, and is kept for
//! ten more, so that the new device learns how it ended.

use std::time::Duration;

use ensemble_types::devices::{self, DeviceLinkRequest, DeviceLinkState};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use sha2::{Digest, Sha256};

use super::encode;

/// The most links of one account that can be in use at once.
pub(crate) const MOST_OPEN_LINKS: i64 = 5;

/// 64 random bits, and 64 of their digest with the account key: a link of another account vouches for nothing. Everyone who knows it may
/// ask, and read how far the link is.
pub(crate) type LinkId = [u8; 16];

/// The id of a link of this account.
pub(crate) fn link_id(random: [u8; 8], account: &[u8; 32]) -> LinkId {
    let text = format!("ensemble-link-id-v1\n{}\n{}", encode(account), encode(&random));
    let digest = Sha256::digest(text);
    let mut id: LinkId = [0; 16];
    id.iter_mut().zip(random.iter().chain(&digest)).for_each(|(byte, from)| *byte = *from);
    id
}

/// Whether this account has made the link with this id.
pub(crate) fn is_link_of(id: &LinkId, account: &[u8; 32]) -> bool {
    id.first_chunk().is_some_and(|random| link_id(*random, account) == *id)
}

/// How far a link is, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkStep {
    Waiting,
    Asked,
    Approved,
    Refused,
}

#[derive(Clone, Debug)]
pub(crate) struct DeviceLink {
    pub(crate) id: LinkId,
    pub(crate) user: UserId,
    pub(crate) step: LinkStep,
    pub(crate) request: Option<DeviceLinkRequest>,
    pub(crate) answer: Option<String>,
    pub(crate) expires_at: Timestamp,
    /// When it is deleted.
    pub(crate) purge_at: Timestamp,
    /// The device asked through the loopback listener of `ensemble up`.
    pub(crate) is_local: bool,
    /// Another device asked later.
    pub(crate) is_asked_again: bool,
}

/// The link is not in the state in which this can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkClosed {
    #[error("another device has asked with this link already")]
    Used,
    #[error("no device has asked with this link yet")]
    NotAsked,
    #[error("this link has ended")]
    Over,
}

impl LinkStep {
    pub(crate) const ALL: [Self; 4] = [Self::Waiting, Self::Asked, Self::Approved, Self::Refused];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Asked => "asked",
            Self::Approved => "approved",
            Self::Refused => "refused",
        }
    }
}

impl DeviceLink {
    pub(crate) fn new(id: LinkId, user: UserId, now: Timestamp, lifetime: Duration) -> Self {
        let expires_at = now.plus(lifetime);
        let purge_at = expires_at.plus(lifetime);
        let (is_local, is_asked_again) = (false, false);
        let step = LinkStep::Waiting;
        Self { id, user, step, request: None, answer: None, expires_at, purge_at, is_local, is_asked_again }
    }

    pub(crate) fn state(&self, now: Timestamp) -> DeviceLinkState {
        match self.step {
            LinkStep::Approved => DeviceLinkState::Approved,
            LinkStep::Refused => DeviceLinkState::Refused,
            _ if self.expires_at <= now => DeviceLinkState::Expired,
            LinkStep::Waiting => DeviceLinkState::Waiting,
            LinkStep::Asked => DeviceLinkState::Asked,
        }
    }

    /// A device asks. Only one may, and once.
    pub(crate) fn ask(self, request: DeviceLinkRequest, is_local: bool, now: Timestamp) -> Result<Self, LinkClosed> {
        match self.state(now) {
            DeviceLinkState::Waiting => Ok(Self { step: LinkStep::Asked, request: Some(request), is_local, ..self }),
            DeviceLinkState::Asked | DeviceLinkState::Approved => Err(LinkClosed::Used),
            DeviceLinkState::Refused | DeviceLinkState::Expired => Err(LinkClosed::Over),
        }
    }

    /// Another device than the one that counts asks. `None`: nothing of this link changes with it.
    pub(crate) fn asked_again(&self, request: &DeviceLinkRequest, now: Timestamp) -> Option<Self> {
        let is_other = self.request.as_ref().is_some_and(|first| first.public_key != request.public_key);
        let is_used = matches!(self.state(now), DeviceLinkState::Asked | DeviceLinkState::Approved);
        (is_used && is_other && !self.is_asked_again).then(|| Self { is_asked_again: true, ..self.clone() })
    }

    /// A list has the device that asked. The answer is sealed for it.
    pub(crate) fn approve(self, answer: String, now: Timestamp) -> Result<Self, LinkClosed> {
        self.asked(now)?;
        Ok(Self { step: LinkStep::Approved, answer: Some(answer), purge_at: now.plus(self.kept_for()), ..self })
    }

    /// What the device sent, while it waits for the answer.
    pub(crate) fn asked(&self, now: Timestamp) -> Result<&DeviceLinkRequest, LinkClosed> {
        match (self.state(now), &self.request) {
            (DeviceLinkState::Asked, Some(request)) => Ok(request),
            (DeviceLinkState::Waiting, _) => Err(LinkClosed::NotAsked),
            _ => Err(LinkClosed::Over),
        }
    }

    /// The account that made it ends it. Again is the same.
    pub(crate) fn refuse(self, now: Timestamp) -> Result<Self, LinkClosed> {
        match self.state(now) {
            DeviceLinkState::Approved => Err(LinkClosed::Over),
            DeviceLinkState::Refused | DeviceLinkState::Expired => Ok(self),
            DeviceLinkState::Waiting | DeviceLinkState::Asked => {
                Ok(Self { step: LinkStep::Refused, purge_at: now.plus(self.kept_for()), ..self })
            }
        }
    }

    /// How long it is kept after its end.
    fn kept_for(&self) -> Duration {
        self.purge_at.since(self.expires_at)
    }

    /// What a reader gets. Who asked, from where, and whether another one did is for the account that made the link.
    pub(crate) fn seen_by(self, reader: Option<UserId>, now: Timestamp) -> devices::DeviceLink {
        let (state, is_maker) = (self.state(now), reader == Some(self.user));
        devices::DeviceLink {
            state,
            request: self.request.filter(|_| is_maker),
            answer: self.answer,
            local: self.is_local && is_maker,
            again: self.is_asked_again && is_maker,
        }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::devices::DeviceKind;
    use ensemble_types::text::{Blob, Text};

    use super::*;

    fn request() -> DeviceLinkRequest {
        let blob = || Blob::new("A".repeat(43)).unwrap();
        DeviceLinkRequest {
            public_key: blob(),
            box_key: blob(),
            name: Text::new("phone").unwrap(),
            kind: DeviceKind::Web,
            by: None,
            mac: blob(),
            signature: Blob::new("A".repeat(86)).unwrap(),
        }
    }

    fn other() -> DeviceLinkRequest {
        DeviceLinkRequest { public_key: Blob::new("B".repeat(43)).unwrap(), ..request() }
    }

    #[test]
    fn the_id_of_a_link_names_the_account_that_made_it() {
        let id = link_id([7; 8], &[1; 32]);
        assert!(is_link_of(&id, &[1; 32]) && !is_link_of(&id, &[2; 32]));
        assert_ne!(id, link_id([8; 8], &[1; 32]));
        for at in 0..16 {
            let mut other = id;
            other[at] ^= 1;
            assert!(!is_link_of(&other, &[1; 32]), "{at}");
        }
    }

    #[test]
    fn a_link_is_asked_once_answered_once_and_ends_after_ten_minutes() {
        let at = |seconds: i64| Timestamp::from_unix_seconds(1_000 + seconds);
        let waiting = DeviceLink::new([1; 16], UserId::generate(), at(0), Duration::from_secs(600));
        let asked = waiting.clone().ask(request(), false, at(599)).unwrap();
        let approved = asked.clone().approve("sealed".to_owned(), at(599)).unwrap();
        let refused = asked.clone().refuse(at(1)).unwrap();
        let states = |now| [&waiting, &asked, &approved, &refused].map(|link| link.state(at(now)));
        use DeviceLinkState::{Approved, Asked, Expired, Refused, Waiting};
        assert_eq!(states(599), [Waiting, Asked, Approved, Refused]);
        assert_eq!(states(600), [Expired, Expired, Approved, Refused]);
        assert_eq!((approved.purge_at, refused.purge_at, waiting.purge_at), (at(1_199), at(601), at(1_200)));

        let ask = |link: &DeviceLink, now| link.clone().ask(request(), false, at(now)).err();
        assert_eq!(ask(&asked, 2), Some(LinkClosed::Used));
        assert_eq!((ask(&refused, 2), ask(&waiting, 600)), (Some(LinkClosed::Over), Some(LinkClosed::Over)));
        let approve = |link: &DeviceLink, now| link.clone().approve(String::new(), at(now)).err();
        assert_eq!(approve(&waiting, 2), Some(LinkClosed::NotAsked));
        for (link, now) in [(&approved, 2), (&refused, 2), (&asked, 600)] {
            assert_eq!(approve(link, now), Some(LinkClosed::Over));
        }
        assert_eq!(approved.clone().refuse(at(600)).err(), Some(LinkClosed::Over));
        assert_eq!(refused.clone().refuse(at(5)).unwrap().purge_at, refused.purge_at);
    }

    #[test]
    fn only_the_account_that_made_a_link_sees_who_asked_and_from_where() {
        let (user, now) = (UserId::generate(), Timestamp::from_unix_seconds(0));
        let asked = DeviceLink::new([1; 16], user, now, Duration::from_secs(600)).ask(request(), true, now).unwrap();
        let asked = asked.asked_again(&other(), now).unwrap();
        let sees = |reader| {
            let seen = asked.clone().seen_by(reader, now);
            [seen.request.is_some(), seen.local, seen.again]
        };
        assert_eq!(sees(Some(user)), [true; 3]);
        assert_eq!([sees(None), sees(Some(UserId::generate()))], [[false; 3]; 2]);
    }

    #[test]
    fn another_device_that_asks_is_noted_once_and_changes_nothing_else() {
        let (user, now) = (UserId::generate(), Timestamp::from_unix_seconds(0));
        let waiting = DeviceLink::new([1; 16], user, now, Duration::from_secs(600));
        assert!(waiting.asked_again(&other(), now).is_none());
        let asked = waiting.ask(request(), false, now).unwrap();
        assert!(asked.asked_again(&request(), now).is_none(), "the same device tries once more");
        let approved = asked.clone().approve("sealed".to_owned(), now).unwrap();
        for used in [&asked, &approved] {
            let again = used.asked_again(&other(), now).unwrap();
            assert_eq!((again.step, again.request.is_some()), (used.step, true));
            assert!(again.asked_again(&other(), now).is_none());
        }
        assert!(asked.clone().refuse(now).unwrap().asked_again(&other(), now).is_none());
        assert!(asked.asked_again(&other(), asked.expires_at).is_none());
    }

    #[test]
    fn the_device_that_asked_reads_the_answer() {
        let (user, now) = (UserId::generate(), Timestamp::from_unix_seconds(0));
        let asked = DeviceLink::new([1; 16], user, now, Duration::from_secs(600)).ask(request(), false, now).unwrap();
        assert_eq!(asked.clone().seen_by(None, now).answer, None);
        let approved = asked.approve("sealed".to_owned(), now).unwrap();
        assert_eq!(approved.seen_by(None, now).answer.as_deref(), Some("sealed"));
    }

    #[test]
    fn the_names_of_steps_are_those_in_stored_links() {
        assert_eq!(LinkStep::ALL.map(LinkStep::as_str), ["waiting", "asked", "approved", "refused"]);
    }
}
