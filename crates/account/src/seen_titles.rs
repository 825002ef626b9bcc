//! What this computer has seen of the metadata of sessions: the newest version of each that counted, and what it said.
//!
//! An older version is an old title that is shown again. What the newest one said is signed again where a server that was restored has
//! lost it, and counts also after the device that has signed it was removed.

use std::collections::BTreeMap;

use ensemble_types::ids::SessionId;
use ensemble_types::line::short;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Result;
use crate::home::Home;

const FILE: &str = "seen-titles.json";
/// Versions by which the next one that is noted may be above the known one. A guest and the server together could show any number, and
/// nothing below it would count.
pub const MOST_AHEAD: i64 = 1_000;
/// The highest version that is noted of a session whose metadata was never seen here. People rename a session less often.
const MOST_AT_FIRST: i64 = 10_000;
/// What is kept of metadata, in bytes. Of a longer one it is the title.
const LONGEST_KEPT: usize = 4 << 10;
/// Characters of a title that stands for metadata that is too long.
pub const SHORT_TITLE: usize = 200;
/// The number of sessions whose metadata is remembered: the newest ones.
pub const MOST_KEPT: usize = 1_000;

/// The newest metadata of a session that has counted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenTitle {
    /// Of the session's key. Metadata counts for one key, so a newer key is more than a newer version.
    epoch: u32,
    pub version: i64,
    /// A JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl SeenTitle {
    /// `at` is the epoch of the session's key and the version.
    pub fn new((epoch, version): (u32, i64), body: &str) -> Self {
        let body = if body.len() <= LONGEST_KEPT { Some(body.to_owned()) } else { title_of(body) };
        Self { epoch, version, body }
    }

    /// The epoch of the session's key, and the version: in this order they grow.
    pub fn at(&self) -> (u32, i64) {
        (self.epoch, self.version)
    }

    pub fn body(&self) -> Option<&str> {
        self.body.as_deref()
    }

    /// Whether it is newer than what is known, and not so far ahead that no honest one might come above it.
    fn follows(&self, known: Option<&Self>) -> bool {
        match known {
            Some(known) => self.at() > known.at() && self.version.saturating_sub(known.version) <= MOST_AHEAD,
            None => self.version <= MOST_AT_FIRST,
        }
    }
}

/// The title alone of metadata that is too long.
fn title_of(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let title = short(body.get("title")?.as_str()?, SHORT_TITLE);
    Some(json!({ "title": title }).to_string())
}

/// By place.
type SeenTitles = BTreeMap<String, BTreeMap<SessionId, SeenTitle>>;

impl Home {
    pub(crate) fn seen_titles(&self, place: &str) -> Result<BTreeMap<SessionId, SeenTitle>> {
        let mut all: SeenTitles = self.read_json(FILE)?.unwrap_or_default();
        Ok(all.remove(place).unwrap_or_default())
    }

    /// Remembers those that are newer than what is known.
    pub(crate) fn note_titles(&self, place: &str, seen: BTreeMap<SessionId, SeenTitle>) -> Result<()> {
        if seen.is_empty() {
            return Ok(());
        }
        self.update_json(FILE, |all: &mut SeenTitles| {
            let known = all.entry(place.to_owned()).or_default();
            for (session, title) in seen {
                if title.follows(known.get(&session)) {
                    known.insert(session, title);
                }
            }
            // Ids begin with the time at which the session was made.
            known.values_mut().rev().skip(MOST_KEPT).for_each(|title| title.body = None);
            // There is none below it.
            known.retain(|_, title| title.version > 1 || title.body.is_some());
            Ok(())
        })
    }

    /// Forgets a session that was deleted.
    pub(crate) fn forget_title(&self, place: &str, session: SessionId) -> Result<()> {
        self.update_json(FILE, |all: &mut SeenTitles| {
            all.get_mut(place).map(|sessions| sessions.remove(&session));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "https://ensemble.example";

    fn note(home: &Home, session: SessionId, at: (u32, i64)) {
        home.note_titles(ORIGIN, BTreeMap::from([(session, SeenTitle::new(at, "{}"))])).unwrap();
    }

    fn noted(home: &Home, session: SessionId) -> Option<(u32, i64)> {
        home.seen_titles(ORIGIN).unwrap().get(&session).map(SeenTitle::at)
    }

    #[test]
    fn the_newest_version_of_each_title_is_remembered_by_key_and_version() {
        let home = Home::of_test_in_memory();
        let (one, other) = (SessionId::generate(), SessionId::generate());
        for at in [(1, 3), (1, 2)] {
            note(&home, one, at);
        }
        note(&home, other, (1, 5));
        assert_eq!((noted(&home, one), noted(&home, other)), (Some((1, 3)), Some((1, 5))));
        // A server that was restored has fewer versions, and its next key is a newer one all the same.
        note(&home, one, (2, 2));
        note(&home, one, (1, 4));
        assert_eq!(noted(&home, one), Some((2, 2)));
        assert!(home.seen_titles("https://elsewhere.example").unwrap().is_empty());
        home.forget_title(ORIGIN, one).unwrap();
        assert_eq!((noted(&home, one), noted(&home, other)), (None, Some((1, 5))));
    }

    /// Else a guest and the server together could end the titles of a session for ever.
    #[test]
    fn a_version_that_is_far_ahead_is_not_remembered() {
        let home = Home::of_test_in_memory();
        let session = SessionId::generate();
        note(&home, session, (1, i64::MAX));
        assert_eq!(noted(&home, session), None);
        note(&home, session, (1, MOST_AT_FIRST));
        note(&home, session, (1, MOST_AT_FIRST + MOST_AHEAD + 1));
        note(&home, session, (2, i64::MAX));
        assert_eq!(noted(&home, session), Some((1, MOST_AT_FIRST)));
        note(&home, session, (1, MOST_AT_FIRST + MOST_AHEAD));
        assert_eq!(noted(&home, session), Some((1, MOST_AT_FIRST + MOST_AHEAD)));
    }

    #[test]
    fn what_it_said_is_kept_as_far_as_it_is_short() {
        let home = Home::of_test_in_memory();
        let sessions: Vec<SessionId> = (0..=MOST_KEPT).map(|_| SessionId::generate()).collect();
        let titles = sessions.iter().map(|session| (*session, SeenTitle::new((1, 2), r#"{"title":"T"}"#)));
        home.note_titles(ORIGIN, titles.collect()).unwrap();
        let seen = home.seen_titles(ORIGIN).unwrap();
        assert_eq!(seen.values().filter(|title| title.body().is_some()).count(), MOST_KEPT);
        assert!(seen.len() == MOST_KEPT + 1 && seen.values().next().unwrap().body().is_none(), "the oldest is not");
        let long = json!({"title": "x".repeat(300), "more": "y".repeat(LONGEST_KEPT)}).to_string();
        let kept: Value = serde_json::from_str(SeenTitle::new((1, 1), &long).body().unwrap()).unwrap();
        assert_eq!(kept["title"].as_str().unwrap().chars().count(), SHORT_TITLE);
        assert_eq!(kept.as_object().unwrap().len(), 1);
    }
}
