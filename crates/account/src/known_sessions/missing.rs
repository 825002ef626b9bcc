//! Sessions that the server calls missing although something of them is not finished. What is not finished stays: a server could end it with
//! one answer. Only the person's own deletion of the session does.

use std::time::Duration;

use ensemble_types::ids::SessionId;

use crate::error::Result;
use crate::home::Home;
use crate::settings::Settings;

/// Within this time the server is not asked again for a session that it has called missing.
const ASK_AGAIN: Duration = Duration::from_secs(3_600);
/// How many are kept.
const MOST: usize = 200;

impl Home {
    /// Whether the server has just called it missing. In seconds since 1970.
    pub(crate) fn is_missing(&self, place: &str, session: SessionId, now: u64) -> Result<bool> {
        let missing = self.settings()?.missing_sessions.remove(place).unwrap_or_default();
        // A clock that was set back must not make it longer.
        Ok(missing.get(&session).is_some_and(|at| now.abs_diff(*at) < ASK_AGAIN.as_secs()))
    }

    /// Notes that the server calls it missing.
    pub(crate) fn note_missing(&self, place: &str, session: SessionId, now: u64) -> Result<()> {
        self.change_settings(|settings| {
            let missing = settings.missing_sessions.entry(place.to_owned()).or_default();
            missing.insert(session, now);
            let oldest = missing.iter().min_by_key(|(_, at)| **at).map(|(session, _)| *session);
            if let (true, Some(oldest)) = (missing.len() > MOST, oldest) {
                missing.remove(&oldest);
                // Whom the person has removed, and whose right is to end, stays noted: the server does not choose how many these are.
                settings.unfinished_rekeys.get_mut(place).and_then(|all| all.remove(&oldest));
            }
        })
    }

    /// The session is there.
    pub(crate) fn end_missing(&self, place: &str, session: SessionId) -> Result<()> {
        if !self.settings()?.missing_sessions.get(place).is_some_and(|missing| missing.contains_key(&session)) {
            return Ok(());
        }
        self.change_settings(|settings| {
            settings.missing_sessions.get_mut(place).and_then(|missing| missing.remove(&session));
        })
    }

    /// Whether something of a session is not finished.
    pub fn is_unfinished(&self, place: &str, session: SessionId) -> Result<bool> {
        let settings = self.settings()?;
        let is_in_rekeys = settings.unfinished_rekeys.get(place).is_some_and(|all| all.contains_key(&session));
        let is_in_removals = settings.removed_shares.get(place).is_some_and(|all| all.contains_key(&session));
        let is_in_revocations = settings.revocations.get(place).is_some_and(|all| all.contains_key(&session));
        Ok(is_in_rekeys || is_in_removals || is_in_revocations)
    }

    /// The person has deleted the session.
    pub(super) fn forget_unfinished(&self, place: &str, session: SessionId) -> Result<()> {
        if !self.is_unfinished(place, session)? {
            return Ok(());
        }
        self.change_settings(|settings| forget(settings, place, session))
    }
}

fn forget(settings: &mut Settings, place: &str, session: SessionId) {
    settings.unfinished_rekeys.get_mut(place).and_then(|all| all.remove(&session));
    settings.removed_shares.get_mut(place).and_then(|all| all.remove(&session));
    settings.revocations.get_mut(place).and_then(|all| all.remove(&session));
    settings.missing_sessions.get_mut(place).and_then(|all| all.remove(&session));
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::seal::KeyRing;
    use ensemble_types::ids::UserId;
    use ensemble_types::shares::ShareLevel;

    use super::*;
    use crate::sharing::Recipients;

    const ORIGIN: &str = "https://ensemble.example";

    #[test]
    fn what_is_not_finished_of_a_missing_session_ends_with_its_deletion() {
        let home = Home::of_test_in_memory();
        let (session, user) = (SessionId::generate(), UserId::generate());
        home.begin_share_removal(ORIGIN, session, user).unwrap();
        home.note_missing(ORIGIN, session, 10_000).unwrap();
        home.note_missing(ORIGIN, session, 20_000).unwrap();
        assert!(home.is_missing(ORIGIN, session, 23_599).unwrap(), "nothing is asked");
        assert!(!home.is_missing(ORIGIN, session, 23_600).unwrap() && !home.is_missing(ORIGIN, session, 0).unwrap());
        assert!(home.removed_shares(ORIGIN, session).unwrap().contains(&user));
        home.end_missing(ORIGIN, session).unwrap();
        assert!(!home.is_missing(ORIGIN, session, 20_000).unwrap() && home.is_unfinished(ORIGIN, session).unwrap());
        home.note_missing(ORIGIN, session, 20_000).unwrap();
        home.forget_session(ORIGIN, session).unwrap();
        assert!(!home.is_missing(ORIGIN, session, 20_000).unwrap() && !home.is_unfinished(ORIGIN, session).unwrap());
    }

    #[test]
    fn a_bounded_number_of_missing_sessions_is_kept() {
        let home = Home::of_test_in_memory();
        let sessions: Vec<SessionId> = (0..=MOST).map(|_| SessionId::generate()).collect();
        for (now, session) in (1..).zip(&sessions) {
            let people = Recipients::from([(UserId::generate(), ShareLevel::View)]);
            home.begin_rekey(ORIGIN, *session, &KeyRing::generate(), &people, None).unwrap();
            home.note_missing(ORIGIN, *session, now).unwrap();
        }
        let is_kept = |at: usize| home.is_unfinished(ORIGIN, sessions[at]).unwrap();
        assert!(!is_kept(0) && is_kept(1) && is_kept(MOST));
        assert_eq!(home.settings().unwrap().missing_sessions[ORIGIN].len(), MOST);
        // A removal does not depend on how many sessions the server calls missing.
        let (removed, user) = (SessionId::generate(), UserId::generate());
        home.begin_share_removal(ORIGIN, removed, user).unwrap();
        home.note_missing(ORIGIN, removed, 0).unwrap();
        assert!(!home.is_missing(ORIGIN, removed, 0).unwrap() && is_kept(1));
        assert!(home.removed_shares(ORIGIN, removed).unwrap().contains(&user));
    }
}
