//! The invitations and the people of an account, as its devices share them.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_protocol::lists::{MOST_NAME_BYTES, nearest_name};
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pins::Shared;

const INVITES: &str = "invites";
const PEOPLE: &str = "people";
/// The most bytes of a name with its number.
const LONGEST_NAME: usize = MOST_NAME_BYTES + 16;
/// What someone is called of whose name nothing can be shown.
const GUEST: &str = "Guest";
/// The most invitations that are shared.
const MOST: usize = 20;
/// A claim waits for its answer so long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(24 * 3_600);
/// A program that has begun to answer is done by then, or gone.
const TURN: Duration = Duration::from_secs(60);

/// An invitation. Members of later versions are kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    /// Absent when it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    /// The address of the server in it.
    pub(crate) base: String,
    pub(crate) session: SessionId,
    pub(crate) level: ShareLevel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) may: Option<May>,
    pub(crate) expires_at: Timestamp,
    /// The program that answers now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answering: Option<Answering>,
    /// Who has joined by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<UserId>,
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answering {
    by: String,
    until: Timestamp,
}

/// A person whom this account knows by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Person {
    /// The public key of the person's account.
    pub(crate) account: String,
    pub(crate) name: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Which device answers a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Mine,
    /// Another one does, or has begun to and may be gone: it is asked again later.
    Other,
    /// It was answered, or has ended.
    Over,
}

pub(super) fn all(shared: &Shared) -> BTreeMap<String, Kept> {
    shared.entries(INVITES)
}

pub(super) fn people(shared: &Shared) -> BTreeMap<UserId, Person> {
    let mut people: BTreeMap<UserId, Person> = shared.entries(PEOPLE);
    for person in people.values_mut() {
        person.name = shown_name(&person.name);
    }
    people
}

/// A name that someone else has chosen, as one that does not deceive: in one line, in NFC and without hidden characters. `None`: nothing
/// is left of it.
pub(super) fn good_name(name: &str) -> Option<String> {
    nearest_name(name, LONGEST_NAME)
}

pub(super) fn shown_name(name: &str) -> String {
    good_name(name).unwrap_or_else(|| GUEST.to_owned())
}

/// What the account calls a person, or would: no other person has this name, also not one of those whose names `here` are in lower case.
pub(super) fn name_for(shared: &Shared, user: UserId, wanted: &str, here: &BTreeMap<String, UserId>) -> String {
    let mut known = people(shared);
    if let Some(person) = known.remove(&user) {
        return person.name;
    }
    let is_taken = |name: &str| {
        let name = name.to_lowercase();
        here.get(&name).is_some_and(|other| *other != user)
            || known.values().any(|person| person.name.to_lowercase() == name)
    };
    let name = shown_name(wanted);
    let (mut free, mut number) = (name.clone(), 1);
    while is_taken(&free) {
        number += 1;
        free = format!("{name} ({number})");
    }
    free
}

/// Adds an invitation. False: there is no room.
pub(super) fn add(shared: &mut Shared, id: &str, new: &Kept, now: Timestamp) -> bool {
    // What is over makes room, the oldest first.
    let mut over: Vec<(String, Kept)> = all(shared).into_iter().filter(|(_, kept)| kept.is_over(now)).collect();
    over.sort_by_key(|(_, kept)| kept.expires_at);
    let beyond = (shared.count(INVITES) + 1).saturating_sub(MOST);
    if over.len() < beyond {
        return false;
    }
    for (id, _) in over.iter().take(beyond) {
        shared.remove(INVITES, id);
    }
    shared.set(INVITES, id, new);
    true
}

/// A guest: who it is, by which account key, and the wanted name.
pub(super) type Named<'a> = (UserId, &'a str, &'a str);

/// Has this program answer the claim, unless another one does. The guest gets a name that no other person has, also not one of those
/// whose names `here` are in lower case.
pub(super) fn take(
    shared: &mut Shared,
    id: &str,
    by: &str,
    (guest, here): (Named<'_>, &BTreeMap<String, UserId>),
    now: Timestamp,
) -> Turn {
    let Some(mut kept) = all(shared).remove(id).filter(|kept| kept.secret.is_some()) else { return Turn::Over };
    if kept.answering.as_ref().is_some_and(|other| other.by != by && other.until > now) {
        return Turn::Other;
    }
    kept.answering = Some(Answering { by: by.to_owned(), until: now.plus(TURN) });
    shared.set(INVITES, id, &kept);
    name(shared, guest, here);
    Turn::Mine
}

/// It was answered: its secret is of no use any more.
pub(super) fn answered(shared: &mut Shared, id: &str, user: Option<UserId>) -> bool {
    let Some(kept) = all(shared).remove(id).filter(|kept| kept.secret.is_some()) else { return false };
    shared.set(INVITES, id, &Kept { secret: None, answering: None, user, ..kept });
    true
}

pub(super) fn forget(shared: &mut Shared, id: &str) -> bool {
    shared.remove(INVITES, id)
}

/// Forgets the invitations whose secrets a device knows that was removed since.
pub(crate) fn forget_known(shared: &mut Shared, before: &Shared) {
    for (id, _) in all(before).into_iter().filter(|(_, kept)| kept.secret.is_some()) {
        forget(shared, &id);
    }
}

/// Gives a person a name that no other one has. One who has a name keeps it.
fn name(shared: &mut Shared, (user, account, wanted): Named<'_>, here: &BTreeMap<String, UserId>) {
    if people(shared).contains_key(&user) {
        return;
    }
    let name = name_for(shared, user, wanted, here);
    let person = Person { account: account.to_owned(), name, more: Map::new() };
    shared.set(PEOPLE, &user.to_string(), &person);
}

impl Kept {
    /// A claim is answered until then.
    pub(super) fn answered_until(&self) -> Timestamp {
        self.expires_at.plus(ANSWERED_WITHIN)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.secret.is_none() || self.answered_until() <= now
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(1_000_000 + seconds)
    }

    fn kept(expires: i64) -> Kept {
        let body = json!({
            "secret": "AA", "base": "https://a", "session": SessionId::generate(), "level": "view", "expiresAt": at(expires), "later": 1
        });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn one_program_at_a_time_answers_a_claim() {
        let (mut shared, bob) = (Shared::default(), UserId::generate());
        assert!(add(&mut shared, "one", &kept(10), at(0)));
        let guest = ((bob, "key", "Bob"), &BTreeMap::new());
        let mut takes = |by, now| take(&mut shared, "one", by, guest, at(now));
        assert_eq!([takes("a", 0), takes("b", 59), takes("a", 59)], [Turn::Mine, Turn::Other, Turn::Mine]);
        assert_eq!([takes("b", 118), takes("b", 119)], [Turn::Other, Turn::Mine], "the first one is gone");
        assert!(answered(&mut shared, "one", Some(bob)));
        assert!(!answered(&mut shared, "one", None));
        assert_eq!(take(&mut shared, "one", "a", guest, at(500)), Turn::Over);
        assert_eq!(take(&mut shared, "two", "a", guest, at(500)), Turn::Over);
        let known = all(&shared).remove("one").unwrap();
        assert_eq!((known.user, known.more["later"].as_i64()), (Some(bob), Some(1)));
    }

    #[test]
    fn what_is_over_makes_room_and_what_is_open_does_not() {
        let mut shared = Shared::default();
        for number in 0..20 {
            assert!(add(&mut shared, &number.to_string(), &kept(number), at(0)));
        }
        let day = 24 * 3_600;
        assert!(!add(&mut shared, "new", &kept(100), at(day - 1)));
        assert!(add(&mut shared, "new", &kept(100), at(day)));
        assert!(answered(&mut shared, "7", None));
        assert!(add(&mut shared, "newer", &kept(100), at(day)));
        let known = all(&shared);
        assert_eq!((known.len(), known.contains_key("0"), known.contains_key("7")), (20, false, false));
    }

    #[test]
    fn two_people_have_two_names() {
        let (mut shared, users) = (Shared::default(), [UserId::generate(), UserId::generate(), UserId::generate()]);
        for (user, given) in users.into_iter().zip(["Bob", "bob", "BOB"]) {
            name(&mut shared, (user, "key", given), &BTreeMap::new());
            name(&mut shared, (user, "key", "Eve"), &BTreeMap::new());
        }
        let mut names: Vec<String> = people(&shared).into_values().map(|person| person.name).collect();
        names.sort();
        assert_eq!(names, ["BOB (3)", "Bob", "bob (2)"]);
    }

    #[test]
    fn no_name_looks_like_another_one() {
        let (mut shared, here) = (Shared::default(), BTreeMap::new());
        for (given, expected) in [
            ("Bob", "Bob"),
            (" Bo\u{200b}b\n", "Bob (2)"),
            ("B\u{202e}ob\u{1b}", "Bob (3)"),
            ("\u{e9}", "\u{e9}"),
            ("e\u{301}", "\u{e9} (2)"),
            (" \u{200b}", "Guest"),
        ] {
            let user = UserId::generate();
            assert_eq!(name_for(&shared, user, given, &here), expected, "before");
            name(&mut shared, (user, "key", given), &here);
            assert_eq!(people(&shared)[&user].name, expected);
        }
        let (user, kept) =
            (UserId::generate(), Person { account: String::new(), name: "Eve\nBob".to_owned(), more: Map::new() });
        shared.set(PEOPLE, &user.to_string(), &kept);
        assert_eq!(people(&shared)[&user].name, "EveBob", "an earlier version has kept it");
    }

    #[test]
    fn a_name_that_this_computer_knows_is_taken() {
        let (mut shared, bob, eve) = (Shared::default(), UserId::generate(), UserId::generate());
        let here = BTreeMap::from([("bob".to_owned(), bob)]);
        name(&mut shared, (eve, "key", "Bob"), &here);
        name(&mut shared, (bob, "key", "Bob"), &here);
        let known = people(&shared);
        assert_eq!((&*known[&eve].name, &*known[&bob].name), ("Bob (2)", "Bob"));
    }

    #[test]
    fn a_removed_device_answers_none_that_it_knew() {
        let (mut before, mut now) = (Shared::default(), Shared::default());
        assert!(add(&mut before, "old", &kept(10), at(0)));
        assert!(add(&mut now, "old", &kept(10), at(0)) && add(&mut now, "new", &kept(10), at(0)));
        forget_known(&mut now, &before);
        assert_eq!(all(&now).into_keys().collect::<Vec<_>>(), ["new"]);
    }
}
