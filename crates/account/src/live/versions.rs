//! The version of a right. A machine takes only a higher one for the same person, so what takes a right away has to be above all that was
//! given before: a server may keep that back and deliver it later.

use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_types::ids::SessionId;
use ensemble_types::time::Timestamp;

use crate::account::Account;
use crate::error::Result;
use crate::home::Home;
use crate::known_sessions::Revocation;

/// A machine refuses a version that is further ahead of its clock, in milliseconds.
pub(super) const CLOCKS: u64 = 5 * 60 * 1_000;

/// What the next version in a session depends on.
pub(super) struct Versions<'a> {
    home: &'a Home,
    place: &'a str,
    session: SessionId,
    /// Of the clocks of this computer and the server, in milliseconds since 1970.
    earlier: u64,
    later: u64,
}

impl<'a> Versions<'a> {
    pub(super) fn of(me: &'a Account, session: SessionId) -> Self {
        let (earlier, later) = me.client.clock().both();
        let milliseconds = |time: Timestamp| u64::try_from(time.micros() / 1_000).unwrap_or_default();
        let (earlier, later) = (milliseconds(earlier), milliseconds(later));
        Self { home: &me.home, place: me.place(), session, earlier, later }
    }

    /// Of a right that is given. A server whose clock is ahead, or a computer whose clock is, makes it no later: what is signed for a later
    /// time could be kept back until what takes it away is older. `known` is what the machine has said of the person, `taking` what is to
    /// take a right away from them and may not have arrived.
    pub(super) fn to_give(&self, known: Option<&AccessGrant>, taking: Option<&Revocation>) -> Result<u64> {
        // The machine refuses one by a clock that is far ahead, and would refuse what is above it.
        let taking = taking.map(|taking| taking.version).filter(|version| *version <= self.earlier + CLOCKS);
        let known = known.map_or(0, |known| known.version).max(taking.unwrap_or_default());
        let next = |given: u64| self.earlier.max(known.max(given).saturating_add(1));
        self.home.note_given(self.place, self.session, next)
    }

    /// Of what takes a right away. `refused`: the machine has refused this version because it is ahead of its clock.
    pub(super) fn to_take(&self, known: Option<&AccessGrant>, refused: Option<u64>) -> Result<u64> {
        let given = self.home.known_session(self.place, self.session)?.given.saturating_add(1);
        // The machine refuses what was given with such a version too.
        let given = if refused.is_none_or(|refused| given < refused) { given } else { 0 };
        let known = known.map_or(0, |known| known.version.saturating_add(1));
        let clock = if refused.is_some() { self.earlier } else { self.later };
        Ok(clock.max(known).max(given))
    }
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::transcript::words::May;
    use ensemble_types::ids::UserId;

    use super::*;
    use crate::known_sessions::LostShare;
    use crate::sessions::tests::{session, user};

    const NOON: u64 = 1_800_000_000_000;
    const HOUR: u64 = 3_600_000;

    /// A session that is remembered, at a computer and a server with these clocks.
    fn at(me: &Account, id: SessionId, (here, there): (u64, u64)) -> Versions<'_> {
        me.home.remember_session(me.place(), &session(me, id, "AAAA"), None).unwrap();
        Versions { earlier: here.min(there), later: here.max(there), ..Versions::of(me, id) }
    }

    fn known(version: u64) -> AccessGrant {
        let (user, account) = (UserId::generate(), String::new());
        AccessGrant { user, account, may: May::Prompt, version, removed: false, key_epoch: None, key: None }
    }

    #[test]
    fn what_takes_a_right_away_is_above_all_that_was_given_whatever_the_server_calls_now() {
        let (me, id) = (user(&ensemble_protocol::AccountKey::generate()), SessionId::generate());
        let given = at(&me, id, (NOON, NOON + 23 * HOUR)).to_give(None, None).unwrap();
        assert_eq!(given, NOON, "the server cannot keep it back until a later time");
        // Two rights in one millisecond, and the server keeps both back.
        let second = at(&me, id, (NOON, NOON)).to_give(None, None).unwrap();
        assert_eq!(second, NOON + 1);
        for there in [NOON, NOON - 23 * HOUR, NOON + 23 * HOUR] {
            let taken = at(&me, id, (NOON, there)).to_take(None, None).unwrap();
            assert!(taken > second && taken >= NOON, "{taken}");
        }
        let set_back = at(&me, id, (NOON - HOUR, NOON - HOUR));
        assert_eq!(set_back.to_take(None, None).unwrap(), second + 1);
        assert_eq!(set_back.to_give(None, None).unwrap(), second + 1);
        assert_eq!(set_back.to_take(Some(&known(NOON + HOUR)), None).unwrap(), NOON + HOUR + 1);
    }

    /// The machine's clock is the server's: it refuses what is more than five minutes ahead of it.
    #[test]
    fn a_computer_with_a_wrong_clock_gives_and_takes_rights() {
        for here in [NOON - 24 * HOUR, NOON + 24 * HOUR] {
            let (me, id) = (user(&ensemble_protocol::AccountKey::generate()), SessionId::generate());
            let versions = at(&me, id, (here, NOON));
            let given = versions.to_give(None, None).unwrap();
            assert!(given <= NOON);
            let mut taken = versions.to_take(Some(&known(given)), None).unwrap();
            if taken > NOON + CLOCKS {
                taken = versions.to_take(Some(&known(given)), Some(taken)).unwrap();
            }
            assert!(taken > given && taken <= NOON + CLOCKS, "{taken}");
            // Another device has taken it away, and the machine has said so.
            let again = versions.to_give(Some(&known(NOON)), None).unwrap();
            assert_eq!(again, NOON + 1);
        }
    }

    #[test]
    fn what_is_given_again_is_above_what_is_still_on_its_way() {
        let (me, id) = (user(&ensemble_protocol::AccountKey::generate()), SessionId::generate());
        let taking = |version| Revocation { local_id: "a".into(), version, share: LostShare::default() };
        let versions = at(&me, id, (NOON + HOUR, NOON));
        assert_eq!(versions.to_give(None, Some(&taking(NOON + HOUR))).unwrap(), NOON, "the machine refuses that one");
        assert_eq!(versions.to_give(None, Some(&taking(NOON + 60_000))).unwrap(), NOON + 60_001);
    }

    /// Both clocks were ahead when a right was given, so the machine has refused it.
    #[test]
    fn a_right_with_a_version_that_was_refused_does_not_keep_another_one_from_being_taken_away() {
        let (me, id) = (user(&ensemble_protocol::AccountKey::generate()), SessionId::generate());
        at(&me, id, (NOON + 48 * HOUR, NOON + 48 * HOUR)).to_give(None, None).unwrap();
        let versions = at(&me, id, (NOON, NOON));
        let first = versions.to_take(Some(&known(NOON - 1)), None).unwrap();
        assert_eq!(first, NOON + 48 * HOUR + 1);
        assert_eq!(versions.to_take(Some(&known(NOON - 1)), Some(first)).unwrap(), NOON);
    }
}
