//! Finishes the removal of a device: sessions and machines get new keys, and the rights that it gave people end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_client::SessionFilter;
use ensemble_types::ids::UserId;
use ensemble_types::refs::Ref;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::ShareLevel;
use futures_util::{StreamExt, TryStreamExt};
use serde::Serialize;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::live::rights::{Given, settle_rights};
use crate::machines;
use crate::notice::Notice;
use crate::seen_titles::MOST_KEPT;
use crate::settings::LeftOfRemoval;
use crate::sharing::{Members, Recipients};

/// Sessions that were written to within this many days get a new key at once, all others before their next message.
const RECENT_DAYS: u64 = 7;
/// Sessions that get a new key at once, the newest first. All others get theirs before their next message.
const MOST_AT_ONCE: usize = 200;

/// Services learn of a removal within 10 s.
const SETTLED: Duration = Duration::from_secs(12);

/// A share that a removed device has made, and that stays.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptShare {
    session: Ref,
    user_id: UserId,
    level: ShareLevel,
}

/// The result of finishing a removal.
pub struct Finished {
    /// How many sessions got a new key.
    pub rekeyed: usize,
    /// The rights that removed devices had given people.
    pub rights: Vec<Given>,
    /// The shares that removed devices had made, where they are kept.
    pub shares: Vec<KeptShare>,
    /// Other people's sessions, to which only their owners can give new keys.
    pub foreign: Vec<Session>,
    /// What is known of some sessions could not be read. The removal stays unfinished for them.
    pub unread: Option<Error>,
}

impl Finished {
    /// The result, if nothing is left to do.
    pub fn whole(mut self) -> Result<Self> {
        self.unread.take().map_or(Ok(self), Err)
    }
}

/// Notes that sessions have to get new keys because of this list, before it is sent: a program that is killed after that is finished by
/// the next one.
pub(crate) fn begin_removal(home: &Home, place: &str, version: u32) -> Result<()> {
    home.change_settings(|settings| {
        settings.left_of_removals.remove(place);
        // An earlier one that is not finished stays the one to be finished.
        settings.unfinished_removals.entry(place.to_owned()).or_insert(version);
    })
}

impl Account {
    /// Judges the titles of the own sessions by the list that is known here, before a device or a machine in it is removed or right after. A
    /// title that it has given counts afterwards only where that was seen.
    pub async fn see_all_titles(&self) {
        let filter = SessionFilter { active_only: false, shared: false };
        let sessions = self.client.sessions(filter).take(MOST_KEPT).try_collect::<Vec<Session>>().await;
        let seen = match sessions {
            Ok(sessions) => self.see_titles(&sessions).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = seen {
            self.say(Notice::TitlesMayBeLost(error));
        }
    }

    /// Waits until every service has learnt of a removal. Until then a removed device can still change what it could change.
    pub async fn settle(&self) {
        self.say(Notice::WaitingForServices(SETTLED));
        tokio::time::sleep(SETTLED).await;
    }

    /// Gives the sessions that are in use new keys. Takes back the rights that removed devices have given there, or keeps them if the
    /// settings say so. Then forgets that the removal is unfinished.
    ///
    /// # Errors
    /// The sessions cannot be listed. Where what is known of one cannot be read, everything else is done, the result says so, and the next
    /// call looks at these sessions only.
    pub async fn finish_removal(&self) -> Result<Finished> {
        let (place, version, mut settings) = (self.place(), self.own().list.version(), self.home.settings()?);
        let wished = settings.keep_rights.remove(place).unwrap_or_default();
        let taken = self.home.kept_digests(place, self.id);
        // Another list may be without one more device.
        let left = settings.left_of_removals.remove(place).filter(|left| left.version == version);
        if let Some(left) = &left {
            self.check_some_readable(left).await?;
        }
        let kept = wished.into_iter().filter(|(_, list)| taken.contains(list)).map(|(key, _)| key).collect();
        let all: Vec<Session> =
            self.client.sessions(SessionFilter { active_only: false, shared: true }).try_collect().await?;
        let (mut sessions, foreign): (Vec<Session>, Vec<Session>) =
            all.into_iter().partition(|session| session.access_level == AccessLevel::Owner);
        if let Some(left) = &left {
            sessions.retain(|session| left.sessions.contains(&session.id));
        }
        let limit = Duration::from_secs(RECENT_DAYS * 24 * 3600);
        let now = self.client.now();
        let is_recent = |session: &Session| session.online || now.since(session.updated_at) < limit;
        // Those that have a new key already need no other one: a program that was killed resumes where it was.
        let (mut wanted, mut later, mut unread) = (Vec::new(), Vec::new(), BTreeMap::new());
        for session in &sessions {
            match self.home.known_session(place, session.id) {
                Ok(known) if !self.is_due(session, Some(&known)) => {}
                Ok(_) => {
                    let is_at_once = is_recent(session) || self.is_without_its_host(session);
                    if is_at_once && wanted.len() < MOST_AT_ONCE { wanted.push(session) } else { later.push(session) }
                }
                // The others get theirs, and the removal stays unfinished.
                Err(why) => drop(unread.insert(session.id, why)),
            }
        }
        let (mut rekeyed, mut shares) = (0, Vec::new());
        for (done, session) in wanted.iter().enumerate() {
            self.client.leave_room().await;
            let renewed = async {
                let people = self.kept_people(session, &kept).await?;
                let is_new = self.rekey_if_due((*session).clone(), &Members::given_by(&kept)).await?;
                Ok::<_, Error>(is_new.then_some(people))
            };
            match renewed.await {
                Ok(Some(people)) => {
                    rekeyed += 1;
                    shares.extend(self.say_kept(session, people).await);
                }
                Ok(None) => {}
                // Others must get theirs. This one is tried again before its next message.
                Err(why) => self.say(Notice::SessionWithoutNewKey { session: session.reference, why }),
            }
            if (done + 1) % 10 == 0 {
                self.say(Notice::SessionsDone { done: done + 1, of: wanted.len() });
            }
        }
        if !kept.is_empty() {
            shares.extend(self.share_all_again(&later, &kept).await);
        }
        let is_live = |session: &&Session| session.hosted && !self.is_without_its_host(session);
        let (recent, old): (Vec<_>, Vec<_>) = sessions.iter().filter(is_live).partition(|session| is_recent(session));
        let rights = settle_rights(self, &[recent, old].concat(), &kept).await;
        if left.is_none()
            && let Err(error) = machines::renew_keys(self).await
        {
            self.say(Notice::MachinesWithoutNewKeys(error));
        }
        self.home.change_settings(|settings| {
            // Another program may have begun another one.
            if settings.unfinished_removals.get(place).is_none_or(|begun| *begun > version) {
                return;
            }
            if unread.is_empty() {
                settings.unfinished_removals.remove(place);
                settings.left_of_removals.remove(place);
                settings.keep_rights.remove(place);
            } else {
                let left = LeftOfRemoval { version, sessions: unread.keys().copied().collect() };
                settings.left_of_removals.insert(place.to_owned(), left);
            }
        })?;
        let unread = unread.pop_first().map(|(_, why)| why);
        Ok(Finished { rekeyed, rights, shares, foreign, unread })
    }

    /// Fails while all these sessions exist and what is remembered of them cannot be read: then there is nothing to do.
    async fn check_some_readable(&self, left: &LeftOfRemoval) -> Result<()> {
        let mut failed = Ok(());
        for session in &left.sessions {
            let Err(why) = self.home.known_session(self.place(), *session) else { return Ok(()) };
            if self.client.session(*session).await.is_err_and(|error| error.is_not_found()) {
                return Ok(());
            }
            failed = Err(why);
        }
        failed
    }

    /// Renews the shares that removed devices have made, in sessions that get their new key later.
    async fn share_all_again(&self, sessions: &[&Session], kept: &BTreeSet<String>) -> Vec<KeptShare> {
        let mut all = Vec::new();
        for session in sessions.iter().take(MOST_AT_ONCE) {
            self.client.leave_room().await;
            match self.share_again((*session).clone(), kept).await {
                Ok(people) => all.extend(self.say_kept(session, people).await),
                Err(why) => self.say(Notice::SharesMayEnd { session: session.reference, why }),
            }
        }
        if sessions.len() > MOST_AT_ONCE {
            self.say(Notice::SharesEnd(sessions.len() - MOST_AT_ONCE));
        }
        all
    }

    /// Says who keeps their access to a session.
    async fn say_kept(&self, session: &Session, people: Recipients) -> Vec<KeptShare> {
        let mut all = Vec::with_capacity(people.len());
        for (user_id, level) in people {
            let person = self.described(user_id).await;
            self.say(Notice::ShareKept { person, level, session: session.reference });
            all.push(KeptShare { session: session.reference, user_id, level });
        }
        all
    }
}
