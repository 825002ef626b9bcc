//! The newest signed lists of the person's own account, for a server that has lost them: it was restored from a backup. A primary device
//! sends them again. A server that is not behind, but shows other lists, gets nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ensemble_client::{Client, Error as ClientError, Known};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::ContentRing;
use ensemble_types::devices::{ChangeDevices, PastDeviceLink, Role, SealedContentRing, SignedList};
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};

use crate::devices::{List, box_of, change};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::names;
use crate::notice::Notice;

const FILE: &str = "own-lists.json";
/// Lists that are kept, the newest ones.
pub const MOST_KEPT: usize = 64;
/// Lists that were sent and have no answer yet, the newest ones.
const MOST_SENT: usize = 8;

/// By place and user.
type Accounts = BTreeMap<String, BTreeMap<UserId, Kept>>;

#[derive(Default, Deserialize, Serialize)]
pub struct Kept {
    /// The oldest first. Each follows the one before it.
    lists: VecDeque<KeptList>,
    /// The content ring of the last one, sealed to this device.
    ring: Option<SealedContentRing>,
    /// Lists that this device has sent, and that the server has not confirmed yet: a command may be killed meanwhile.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    sent: VecDeque<KeptList>,
}

/// A list, and what vouches for the keys that it adds, if this device has made it.
#[derive(Clone, Deserialize, Serialize)]
struct KeptList {
    #[serde(flatten)]
    signed: SignedList,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    proofs: BTreeMap<String, Blob<86, 86>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<PastDeviceLink>,
}

impl KeptList {
    fn new(signed: SignedList) -> Self {
        Self { signed, proofs: BTreeMap::new(), links: Vec::new() }
    }

    fn vouches(&self) -> bool {
        !self.proofs.is_empty() || !self.links.is_empty()
    }

    fn list(&self) -> Result<List> {
        Ok(List::remembered(&self.signed).map_err(ClientError::from)?)
    }
}

impl Kept {
    fn last(&self) -> Result<Option<List>> {
        self.lists.back().map(KeptList::list).transpose()
    }

    fn add(&mut self, mut new: KeptList) -> Result<()> {
        if !new.vouches()
            && let Some(sent) = self.sent.iter().position(|sent| sent.signed == new.signed)
        {
            new = self.sent.remove(sent).unwrap_or(new);
        }
        if let Some(same) = self.lists.iter_mut().find(|kept| kept.signed == new.signed) {
            if new.vouches() {
                *same = new;
            }
            return Ok(());
        }
        // One that is damaged says nothing.
        let (last, list) = (self.last().ok().flatten(), new.list()?);
        match last {
            Some(last) if list.version() <= last.version() => return Ok(()),
            Some(last) if list.body().prev.as_deref() == Some(&*last.digest_text()) => {}
            // Some in between were never read here.
            _ => self.lists.clear(),
        }
        self.ring = None;
        self.lists.push_back(new);
        while self.lists.len() > MOST_KEPT {
            self.lists.pop_front();
        }
        // No other list of this version or an older one can be the next.
        self.sent.retain(|sent| sent.list().is_ok_and(|sent| sent.version() > list.version()));
        Ok(())
    }

    fn digests(&self) -> BTreeSet<String> {
        self.lists.iter().filter_map(|kept| Some(kept.list().ok()?.digest_text())).collect()
    }

    fn send(&mut self, new: KeptList) {
        self.sent.retain(|sent| sent.signed != new.signed);
        self.sent.push_back(new);
        while self.sent.len() > MOST_SENT {
            self.sent.pop_front();
        }
    }

    /// The lists that follow the one that the server shows, up to the newest one. `None`: not all of them are kept.
    fn after(self, shown: Option<&List>, newest: &List) -> Result<Option<Vec<KeptList>>> {
        let (version, digest) = (shown.map_or(0, List::version), shown.map(List::digest_text));
        if self.last().ok().flatten().is_none_or(|last| last.digest() != newest.digest()) {
            return Ok(None);
        }
        let mut missing = Vec::new();
        for kept in self.lists {
            let Ok(list) = kept.list() else { return Ok(None) };
            let is_other = list.version() == version && Some(list.digest_text()) != digest;
            let follows_another = list.version() == version.saturating_add(1) && list.body().prev != digest;
            if is_other || follows_another {
                return Err(ClientError::OldDeviceList.into());
            }
            if list.version() > version {
                missing.push(kept);
            }
        }
        let first = missing.first().map(KeptList::list).transpose()?;
        Ok(first.filter(|first| first.body().prev == digest).map(|_| missing))
    }
}

impl Home {
    fn kept_lists(&self, place: &str, user: UserId) -> Kept {
        self.all_kept().get_mut(place).and_then(|users| users.remove(&user)).unwrap_or_default()
    }

    /// The digests of the newest lists that the server is known to have taken.
    pub(crate) fn kept_digests(&self, place: &str, user: UserId) -> BTreeSet<String> {
        self.kept_lists(place, user).digests()
    }

    /// What cannot be read is needed only for a server that has lost lists, so it stops no command. The next list replaces it.
    fn all_kept(&self) -> Accounts {
        self.read_json(FILE).map(Option::unwrap_or_default).unwrap_or_else(|why| self.without_lists(why))
    }

    fn without_lists(&self, why: Error) -> Accounts {
        self.say(Notice::KeptListsLost { path: self.path().join(FILE), why });
        Accounts::default()
    }

    /// Keeps lists of the own account that were checked, the oldest first, and the ring of the last of them.
    pub(crate) fn keep_lists(
        &self,
        (place, user): (&str, UserId),
        checked: impl IntoIterator<Item = SignedList>,
        ring: &SealedContentRing,
    ) -> Result<()> {
        self.keep((place, user), checked.into_iter().map(KeptList::new), Some(ring))
    }

    fn keep(
        &self,
        (place, user): (&str, UserId),
        new: impl IntoIterator<Item = KeptList>,
        ring: Option<&SealedContentRing>,
    ) -> Result<()> {
        self.change_kept((place, user), |kept| {
            let mut last = None;
            for list in new {
                last = Some(list.signed.clone());
                kept.add(list)?;
            }
            // Another command may have kept a newer list, with its ring.
            if last.is_some() && last.as_ref() == kept.lists.back().map(|kept| &kept.signed) {
                kept.ring = ring.cloned().or_else(|| kept.ring.take());
            }
            Ok(())
        })
    }

    fn change_kept(&self, (place, user): (&str, UserId), change: impl FnOnce(&mut Kept) -> Result<()>) -> Result<()> {
        let change = |all: &mut Accounts| change(all.entry(place.to_owned()).or_default().entry(user).or_default());
        self.change_json(FILE, |why| Ok(self.without_lists(why)), change)
    }
}

/// Has the server take a list that this device has made, and remembers it, with what vouches for the keys that it adds: `change` has that,
/// and `links` the linking that it completes. That is on disk before: a command that is killed meanwhile loses none of it.
pub async fn send(
    home: &Home,
    client: &Client,
    (key, user): (&AccountKey, UserId),
    list: &List,
    (change, links): (&ChangeDevices, Vec<PastDeviceLink>),
) -> Result<()> {
    let place = home.place(client.origin(), user)?;
    let account = (&*place, user);
    let made = KeptList { signed: list.signed().clone(), proofs: change.proofs.clone(), links };
    home.change_kept(account, |kept| {
        kept.send(made.clone());
        Ok(())
    })?;
    client.change_devices(change).await?;
    home.remember_list(&place, user, list)?;
    home.keep_names(account, &change.names)?;
    home.keep(account, [made], change.sealed.get(&key.public_key()))
}

/// Sends the server the lists that it has lost, if this is a primary device and has them. The server shows another list than the known
/// one: when it is not simply behind, nothing is sent, and it is not to be relied on.
pub(crate) async fn send_again(home: &Home, client: &Client, key: &AccountKey, user: UserId) -> Result<()> {
    let place = &*home.place(client.origin(), user)?;
    let Some(known) = home.known_list(place, user)? else { return Err(ClientError::OldDeviceList.into()) };
    let account = &known.body().account;
    let shown = client.newest_list(user, Known::Account(account)).await?;
    if shown.as_ref().is_some_and(|shown| shown.version() >= known.version()) {
        return Err(ClientError::OldDeviceList.into());
    }
    let mut kept = home.kept_lists(place, user);
    let ring = kept.ring.take();
    let missing = kept.after(shown.as_ref(), &known)?;
    let is_primary = known.device(&key.public_key()).is_some_and(|device| device.role == Role::Primary);
    let (Some(missing), Some(ring), true) = (missing, ring, is_primary) else {
        return Err(Error::ServerBehind);
    };
    let contents = ContentRing::open(&ring, &box_of(key)?, &key.public_key(), &known)
        .map_err(|error| Error::Seal("Your content keys".to_owned(), error))?;
    let names = names::of(home, client, user, &known).await?;
    let mut change = ChangeDevices { list: None, ..change(&known, &contents, [], names.given().clone())? };
    for list in missing {
        change.lists.push(list.signed);
        change.proofs.extend(list.proofs);
        change.links.extend(list.links);
    }
    match client.change_devices(&change).await {
        Ok(()) => {
            home.say(Notice::ListsRestored);
        }
        // Another primary device was faster. Then its lists are read.
        Err(error) if error.is(Code::DeviceListConflict) => {}
        Err(error) if error.is(Code::Conflict) => {
            return Err(Error::ServerBehindForeignDevice);
        }
        Err(error) if error.is(Code::InvalidArgument) => {
            return Err(Error::ServerBehindRefused(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ensemble_types::devices::{DeviceList, ListedDevice};
    use ensemble_types::time::Timestamp;

    use super::*;
    use crate::devices::{public, signed};

    const AT: Timestamp = Timestamp::from_micros(0);

    fn lists(count: usize) -> Vec<List> {
        let (key, contents) = (AccountKey::generate(), ContentRing::generate());
        let box_key = box_of(&key).unwrap().public().to_text();
        let entry = ListedDevice {
            key: key.public_key(),
            box_key,
            role: Role::Primary,
            machine_id: None,
            name: None,
            by: None,
        };
        let first = DeviceList {
            account: key.public_key(),
            version: 1,
            prev: None,
            created: AT,
            content_epoch: 1,
            content_public_key: public(&contents).unwrap().to_text(),
            devices: vec![entry],
        };
        let mut all = vec![List::first(&signed(&first, &key).unwrap(), &key.public_key()).unwrap()];
        while all.len() < count {
            let last = all.last().unwrap();
            let next = last.next(&signed(&last.successor(AT), &key).unwrap()).unwrap();
            all.push(next);
        }
        all
    }

    fn kept<'l>(lists: impl IntoIterator<Item = &'l List>) -> Kept {
        let mut kept = Kept::default();
        for list in lists {
            kept.add(KeptList::new(list.signed().clone())).unwrap();
        }
        kept
    }

    #[test]
    fn the_newest_64_lists_are_kept_and_follow_each_other() {
        let all = lists(70);
        let newest = &all[69];
        let missing = |shown: usize| kept(&all).after(Some(&all[shown - 1]), newest).unwrap().map(|lists| lists.len());
        assert_eq!((missing(69), missing(6), missing(5)), (Some(1), Some(64), None));
        let of_all = kept(&all[..3]).after(None, &all[2]).unwrap();
        assert_eq!(of_all.map(|lists| lists.len()), Some(3), "the server has none");
        let (gap, old) = (kept([&all[0], &all[2]]), kept(&all[..3]));
        assert!(gap.after(Some(&all[0]), &all[2]).unwrap().is_none(), "the second one was never read");
        assert!(old.after(Some(&all[0]), newest).unwrap().is_none(), "it lacks the newest ones");
    }

    #[test]
    fn another_history_is_not_an_older_one() {
        let (all, others) = (lists(4), lists(4));
        for version in [1, 2, 3] {
            assert!(kept(&all).after(Some(&others[version - 1]), &all[3]).is_err(), "{version}");
        }
    }

    #[test]
    fn what_vouches_for_a_list_is_not_lost_when_it_is_read_again() {
        let all = lists(1);
        let mut kept = kept(&all);
        let proofs = BTreeMap::from([(all[0].body().account.clone(), Blob::new("A".repeat(86)).unwrap())]);
        kept.add(KeptList { proofs, ..KeptList::new(all[0].signed().clone()) }).unwrap();
        kept.add(KeptList::new(all[0].signed().clone())).unwrap();
        assert!(kept.lists.len() == 1 && kept.lists[0].vouches());
    }

    /// What vouches for the first device of these lists, with a list.
    fn vouching(list: &List) -> KeptList {
        let proofs = BTreeMap::from([(list.body().account.clone(), Blob::new("A".repeat(86)).unwrap())]);
        KeptList { proofs, ..KeptList::new(list.signed().clone()) }
    }

    #[test]
    fn a_list_that_was_sent_and_not_taken_keeps_no_rights() {
        let all = lists(2);
        let mut kept = kept(&all[..1]);
        kept.send(vouching(&all[1]));
        assert_eq!(kept.digests(), BTreeSet::from([all[0].digest_text()]));
        kept.add(KeptList::new(all[1].signed().clone())).unwrap();
        assert_eq!(kept.digests(), all.iter().map(List::digest_text).collect());
    }

    #[test]
    fn what_vouches_for_a_list_is_kept_by_a_command_that_is_killed() {
        let all = lists(4);
        let mut kept = kept(&all[..1]);
        kept.send(vouching(&all[1]));
        let again = serde_json::to_string(&kept).unwrap();
        let mut kept: Kept = serde_json::from_str(&again).unwrap();
        kept.add(KeptList::new(all[1].signed().clone())).unwrap();
        assert!(kept.lists[1].vouches() && kept.sent.is_empty(), "the next command reads that the server has it");
        kept.send(vouching(&all[2]));
        kept.add(KeptList::new(all[3].signed().clone())).unwrap();
        assert!(kept.sent.is_empty(), "the server has newer ones");
        for list in lists(MOST_SENT + 1) {
            kept.send(vouching(&list));
            kept.send(vouching(&list));
        }
        assert_eq!(kept.sent.len(), MOST_SENT);
    }

    #[test]
    fn a_file_that_is_damaged_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::of_test(place.path().join("home"));
        home.check_writable().unwrap();
        let (user, all) = (UserId::generate(), lists(2));
        let (account, ring) = (("https://one", user), SealedContentRing::new("r").unwrap());
        let keep = |list: &List| home.keep_lists(account, [list.signed().clone()], &ring).unwrap();
        let no_list = r#"{"body": "{}", "signer": "S", "signature": "G"}"#.replace('S', &"A".repeat(43)).replace('G', &"A".repeat(86));
        let no_list = format!(r#"{{"https://one": {{"{user}": {{"lists": [{no_list}], "ring": null}}}}}}"#);
        for damaged in ["", "{\"https://one\": ", "[1]", &no_list] {
            keep(&all[0]);
            std::fs::write(home.path().join(FILE), damaged).unwrap();
            assert!(home.kept_lists("https://one", user).after(Some(&all[0]), &all[1]).unwrap().is_none(), "{damaged}");
            keep(&all[1]);
            let kept = home.kept_lists("https://one", user);
            assert_eq!(kept.lists.iter().map(|kept| &kept.signed).collect::<Vec<_>>(), [all[1].signed()], "{damaged}");
            assert!(kept.ring.is_some());
            std::fs::remove_file(home.path().join(FILE)).unwrap();
        }
    }
}
