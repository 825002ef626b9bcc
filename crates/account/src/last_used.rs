//! What this device used last. It is what `last` means: the server could put anything first in a list.

use std::collections::BTreeMap;

use ensemble_types::ids::{RunId, SessionId, UserId};
use ensemble_types::sessions::Session;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::error::Result;
use crate::home::Home;
use crate::notice::Notice;

const LAST: &str = "last.json";
/// When one is deleted, the one before is the last.
const MOST: usize = 50;

/// A session that was used, and whether an agent works in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UsedSession {
    id: SessionId,
    hosted: bool,
}

/// The newest first.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Used {
    sessions: Vec<UsedSession>,
    runs: Vec<RunId>,
}

impl Used {
    fn last_session(&self, with_agent: bool) -> Option<SessionId> {
        self.sessions.iter().find(|session| session.hosted || !with_agent).map(|session| session.id)
    }
}

/// By place and account.
type AllUsed = BTreeMap<String, BTreeMap<UserId, Used>>;

impl Account {
    /// The session that was used last here, or the last one in which an agent works.
    pub(crate) fn last_session(&self, with_agent: bool) -> Option<SessionId> {
        self.home.used(self.place(), self.id).last_session(with_agent)
    }

    /// The run that was submitted or watched last here.
    pub fn last_run(&self) -> Option<RunId> {
        self.home.used(self.place(), self.id).runs.first().copied()
    }

    /// Notes that a session is used now.
    pub fn use_session(&self, session: &Session) {
        let used = UsedSession { id: session.id, hosted: session.hosted };
        self.note(|all| put_first(&mut all.sessions, used, |other| other.id == used.id));
    }

    /// Notes that a run is used now.
    pub fn use_run(&self, run: RunId) {
        self.note(|all| put_first(&mut all.runs, run, |other| *other == run));
    }

    /// A session that was deleted is not the last one.
    pub fn forget_used_session(&self, session: SessionId) {
        self.note(|used| used.sessions.retain(|other| other.id != session));
    }

    /// A run that was deleted is not the last one.
    pub fn forget_used_run(&self, run: RunId) {
        self.note(|used| used.runs.retain(|other| *other != run));
    }

    /// What is noted is done already, so a file that cannot be written is no error of the command.
    fn note(&self, change: impl FnOnce(&mut Used)) {
        if let Err(error) = self.home.change_used(self.place(), self.id, change) {
            self.say(Notice::LastNotKept(error));
        }
    }
}

impl Home {
    /// A file that cannot be read says nothing, and the next use replaces it.
    fn used(&self, place: &str, user: UserId) -> Used {
        let mut all: AllUsed = self.read_json(LAST).ok().flatten().unwrap_or_default();
        all.get_mut(place).and_then(|users| users.remove(&user)).unwrap_or_default()
    }

    fn change_used(&self, place: &str, user: UserId, change: impl FnOnce(&mut Used)) -> Result<()> {
        self.renew_json(LAST, |all: &mut AllUsed| {
            change(all.entry(place.to_owned()).or_default().entry(user).or_default());
            Ok(())
        })?;
        Ok(())
    }
}

fn put_first<T>(used: &mut Vec<T>, newest: T, is_it: impl Fn(&T) -> bool) {
    used.retain(|other| !is_it(other));
    used.insert(0, newest);
    used.truncate(MOST);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "https://one";

    fn home() -> (tempfile::TempDir, Home) {
        let place = tempfile::tempdir().unwrap();
        let home = Home::of_test(place.path().join("home"));
        (place, home)
    }

    fn use_run(home: &Home, user: UserId, run: RunId) {
        home.change_used(ONE, user, |used| put_first(&mut used.runs, run, |other| *other == run)).unwrap();
    }

    #[test]
    fn what_was_used_last_is_first_and_stands_once() {
        let (_place, home) = home();
        let (user, other) = (UserId::generate(), UserId::generate());
        let runs: Vec<RunId> = (0..=MOST).map(|_| RunId::generate()).collect();
        runs.iter().for_each(|run| use_run(&home, user, *run));
        use_run(&home, user, runs[1]);
        let used = home.used(ONE, user).runs;
        assert_eq!((used.len(), used[0], used[1]), (MOST, runs[1], runs[MOST]));
        assert_eq!(used.iter().filter(|run| **run == runs[1]).count(), 1);
        assert!(!used.contains(&runs[0]), "the oldest is forgotten");
        assert!(home.used("https://two", user).runs.is_empty(), "another server");
        assert!(home.used(ONE, other).runs.is_empty(), "another account");
        home.change_used(ONE, user, |used| used.runs.retain(|run| *run != runs[1])).unwrap();
        assert_eq!(home.used(ONE, user).runs[0], runs[MOST], "the one before is the last");
    }

    #[test]
    fn the_last_session_with_an_agent_may_be_older_than_the_last_one() {
        let [talk, work] = [false, true].map(|hosted| UsedSession { id: SessionId::generate(), hosted });
        let used = Used { sessions: vec![talk, work], runs: Vec::new() };
        assert_eq!((used.last_session(false), used.last_session(true)), (Some(talk.id), Some(work.id)));
        assert_eq!(Used { sessions: vec![talk], runs: Vec::new() }.last_session(true), None);
    }

    #[test]
    fn the_file_is_its_owners_and_one_that_is_damaged_is_replaced() {
        let (_place, home) = home();
        let (user, run) = (UserId::generate(), RunId::generate());
        let file = home.path().join(LAST);
        use_run(&home, user, RunId::generate());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for damaged in ["", "{\"https://one\": ", "[1]"] {
            std::fs::write(&file, damaged).unwrap();
            assert!(home.used(ONE, user).runs.is_empty(), "{damaged}");
            use_run(&home, user, run);
            assert_eq!(home.used(ONE, user).runs, [run], "{damaged}");
        }
    }

    #[test]
    fn programs_that_note_something_at_once_lose_nothing() {
        let (_place, home) = home();
        let user = UserId::generate();
        let runs: Vec<RunId> = (0..8).map(|_| RunId::generate()).collect();
        std::thread::scope(|scope| {
            for run in &runs {
                scope.spawn(|| use_run(&home, user, *run));
            }
        });
        let used = home.used(ONE, user).runs;
        assert!(used.len() == runs.len() && runs.iter().all(|run| used.contains(run)), "{used:?}");
    }
}
