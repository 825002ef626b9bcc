//! One record for each session. The one record of all sessions that earlier versions have kept is taken over.

use std::collections::BTreeMap;

use ensemble_types::ids::SessionId;
use ensemble_types::signatures::digest;

use super::KnownSession;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::store::Edit;

/// The record of earlier versions.
const OLD: &str = "sessions.json";
/// What it says when it was taken over. An earlier version that still runs cannot read it, so it stops. Without the numbers it would take
/// the server's word for which key is the newest.
const MOVED: &[u8] = b"\"Each session has a file of its own now, in the folder sessions.\"\n";
/// A longer part of a name is a digest.
const LONGEST: usize = 150;
/// By place.
type Sessions = BTreeMap<String, BTreeMap<SessionId, KnownSession>>;

/// The record of a session. Each server has a folder of its own.
pub(super) fn record_of(place: &str, session: SessionId) -> String {
    let escaped = |byte: u8| match char::from(byte) {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') => c.to_string(),
        _ => format!("_{byte:02x}"),
    };
    let server: String = place.bytes().map(escaped).collect();
    let server = if server.len() > LONGEST { format!("long-{}", digest(place)) } else { server };
    format!("sessions/{server}/{session}.json")
}

/// What a record of sessions says is needed against a server that shows old keys.
fn of_sessions(error: Error) -> Error {
    match error {
        Error::Damaged { path, why } => Error::DamagedSessions { path, why },
        error => error,
    }
}

impl Home {
    /// What this computer remembers of a session: its owner, and the newest epoch of a key that it has used.
    pub(crate) fn known_session(&self, place: &str, session: SessionId) -> Result<KnownSession> {
        self.take_over_sessions()?;
        let known: Option<Option<KnownSession>> = self.read_json(&record_of(place, session)).map_err(of_sessions)?;
        Ok(known.flatten().unwrap_or_default())
    }

    /// Changes what is remembered of a session. `None`: nothing is.
    pub(super) fn change_session<R>(
        &self,
        place: &str,
        session: SessionId,
        change: impl FnOnce(&mut Option<KnownSession>) -> R,
    ) -> Result<R> {
        self.take_over_sessions()?;
        self.change_json(&record_of(place, session), |damaged| Err(of_sessions(damaged)), |known| Ok(change(known)))
    }

    /// Takes over what earlier versions have kept. That is replaced last, so a program that is killed meanwhile loses nothing: the next one
    /// begins again.
    pub(super) fn take_over_sessions(&self) -> Result<()> {
        while let Some(bytes) = self.store().get(OLD)?.filter(|bytes| bytes != MOVED) {
            let old: Sessions = self.parsed(OLD, &bytes).map_err(of_sessions)?;
            for (place, sessions) in old {
                for (session, old) in sessions {
                    let take_over = |known: &mut Option<KnownSession>| {
                        *known = Some(newer(old, known.take()));
                        Ok(())
                    };
                    self.change_json(&record_of(&place, session), |damaged| Err(of_sessions(damaged)), take_over)?;
                }
            }
            let replace = |found: Result<Option<&[u8]>>| {
                Ok(if found? == Some(&*bytes) { Edit::Put(MOVED.to_vec()) } else { Edit::Keep })
            };
            self.store().update(OLD, Box::new(replace))?;
        }
        Ok(())
    }
}

/// The record with the newer key, and at the same one that of this version. The numbers only grow, and whose session it is stays.
fn newer(old: KnownSession, known: Option<KnownSession>) -> KnownSession {
    let Some(known) = known else { return old };
    let (epoch, floor, given) = (old.epoch.max(known.epoch), old.floor.max(known.floor), old.given.max(known.given));
    let whose = known.owner.map(|owner| (Some(owner), known.host.clone()));
    // No earlier version has these.
    let (used, begun) = (known.used.clone(), known.begun.clone());
    let newer = if old.epoch > known.epoch { old } else { known };
    let (owner, host) = whose.unwrap_or((newer.owner, newer.host.clone()));
    KnownSession { epoch, floor, owner, host, given, used, begun, ..newer }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ensemble_types::ids::UserId;
    use futures_util::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use crate::computer::Computer;
    use crate::notice::Notices;
    use crate::store::{Change, FileStore, Lock, Store};

    const ONE: &str = "https://ensemble.example";
    const OTHER: &str = "http://[::1]:8080";

    /// A store of a program that is killed before its next change.
    #[derive(Debug)]
    struct Killed(FileStore, AtomicUsize);

    impl Store for Killed {
        fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
            self.0.get(name)
        }

        fn update(&self, name: &str, change: Change<'_>) -> Result<()> {
            let left = self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_err(|_| Error::NotListed)?;
            self.0.update(name, change)
        }

        fn replace(&self, name: &str, edit: Edit) -> Result<()> {
            self.0.replace(name, edit)
        }

        fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Lock>> {
            self.0.lock(name)
        }

        fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
            self.0.try_lock(name)
        }

        fn check(&self) -> Result<()> {
            self.0.check()
        }
    }

    fn numbers(home: &Home, place: &str, session: SessionId) -> (u32, u32) {
        let known = home.known_session(place, session).unwrap();
        (known.epoch, known.floor)
    }

    #[test]
    fn a_program_that_is_killed_while_it_takes_sessions_over_loses_none() {
        let sessions: Vec<SessionId> = (0..4).map(|_| SessionId::generate()).collect();
        let old = |epoch: u32, floor: u32| json!({"epoch": epoch, "floor": floor, "owner": null});
        let record = json!({
            ONE: {sessions[0].to_string(): old(7, 3), sessions[1].to_string(): old(4, 4)},
            OTHER: {sessions[2].to_string(): old(9, 2), sessions[0].to_string(): old(2, 1)},
        });
        let mut ends = 0;
        for changes in 0..=5 {
            let place = tempfile::tempdir().unwrap();
            let home = Home::of_test(place.path().join("home"));
            home.write_json(OLD, &record).unwrap();
            let store = Killed(FileStore::new(home.path().to_owned()), AtomicUsize::new(changes));
            let killed = Home::on(Arc::new(store), Computer::named("desk"), Notices::none());
            ends += usize::from(killed.known_session(ONE, sessions[0]).is_ok());
            let found = [(ONE, 0), (ONE, 1), (OTHER, 2), (OTHER, 0), (OTHER, 1)]
                .map(|(place, at)| numbers(&home, place, sessions[at]));
            assert_eq!(found, [(7, 3), (4, 4), (9, 2), (2, 1), (1, 1)], "{changes}");
            assert_eq!(std::fs::read(home.path().join(OLD)).unwrap(), MOVED);
        }
        assert_eq!(ends, 1, "the last one is not killed");
    }

    #[test]
    fn what_an_earlier_version_keeps_later_lowers_no_number() {
        let home = Home::of_test_in_memory();
        let session = SessionId::generate();
        let keep = |epoch: u32, floor: u32, hostless: Option<u32>| {
            let old = json!({"epoch": epoch, "floor": floor, "owner": null, "hostless": hostless});
            home.write_json(OLD, &json!({ONE: {session.to_string(): old}})).unwrap();
            let known = home.known_session(ONE, session).unwrap();
            (known.epoch, known.floor, known.hostless)
        };
        assert_eq!(keep(5, 4, Some(5)), (5, 4, Some(5)));
        assert_eq!(keep(3, 2, None), (5, 4, Some(5)), "it started again");
        assert_eq!(keep(6, 2, None), (6, 4, None));
    }

    #[test]
    fn what_an_earlier_version_keeps_later_gives_the_session_to_no_other_owner() {
        let home = Home::of_test_in_memory();
        let (session, [ann, eve]) = (SessionId::generate(), [UserId::generate(), UserId::generate()]);
        for (epoch, owner) in [(5, ann), (50, eve)] {
            let old = json!({"epoch": epoch, "floor": 1, "owner": owner});
            home.write_json(OLD, &json!({ONE: {session.to_string(): old}})).unwrap();
            let known = home.known_session(ONE, session).unwrap();
            assert_eq!((known.epoch, known.owner), (epoch, Some(ann)));
        }
    }

    #[test]
    fn a_server_with_a_long_name_has_records_of_its_own() {
        let home = Home::of_test_in_memory();
        let session = SessionId::generate();
        let origins = ["a", "b"].map(|end| format!("https://{}{end}.example:8443", "long.".repeat(45)));
        for (epoch, place) in (2..).zip(&origins) {
            let old = json!({"epoch": epoch, "floor": 1, "owner": null});
            home.write_json(OLD, &json!({place: {session.to_string(): old}})).unwrap();
            assert_eq!(numbers(&home, place, session).0, epoch);
        }
        assert_eq!(numbers(&home, &origins[0], session).0, 2);
    }

    #[test]
    fn a_damaged_record_stops_its_session_alone() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::of_test(place.path().join("home"));
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let both =
            json!({one.to_string(): {"epoch": 2, "owner": null}, other.to_string(): {"epoch": 3, "owner": null}});
        home.write_json(OLD, &json!({ ONE: both })).unwrap();
        assert_eq!(numbers(&home, ONE, one).0, 2);
        let file = home.path().join(record_of(ONE, one));
        std::fs::write(&file, "{").unwrap();
        let error = home.known_session(ONE, one).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()) && error.contains("Restore it from a backup"), "{error}");
        home.say_next(ONE, one).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{", "it is not replaced");
        assert_eq!(numbers(&home, ONE, other).0, 3);
        home.forget_session(ONE, one).unwrap();
        assert!(!file.exists());
        assert_eq!(numbers(&home, ONE, other).0, 3);
        std::fs::write(home.path().join(OLD), "{").unwrap();
        assert!(home.known_session(ONE, other).unwrap_err().to_string().contains(OLD), "it may hold higher numbers");
    }
}
