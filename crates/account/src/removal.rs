//! Finishes the removal of a device: sessions and machines get new keys, and the rights that it gave people end.

use std::collections::BTreeSet;
use std::time::Duration;

use ensemble_client::SessionFilter;
use ensemble_types::sessions::{AccessLevel, Session};
use futures_util::{StreamExt, TryStreamExt};

use crate::account::Account;
use crate::error::Result;
use crate::home::Home;
use crate::live::rights::{Given, settle_rights};
use crate::machines;
use crate::notice::Notice;
use crate::seen_titles::MOST_KEPT;
use crate::sharing::Members;

/// Sessions that were written to within this many days get a new key at once, all others before their next message.
const RECENT_DAYS: u64 = 7;
/// Sessions that get a new key at once, the newest first. All others get theirs before their next message.
const MOST_AT_ONCE: usize = 200;

/// Services learn of a removal within 10 s.
const SETTLED: Duration = Duration::from_secs(12);

/// The result of finishing a removal.
pub struct Finished {
    /// How many sessions got a new key.
    pub rekeyed: usize,
    /// The rights that removed devices had given people.
    pub rights: Vec<Given>,
    /// Other people's sessions, to which only their owners can give new keys.
    pub foreign: Vec<Session>,
}

/// Notes that sessions have to get new keys because of this list, before it is sent: a program that is killed after that is finished by
/// the next one.
pub(crate) fn begin_removal(home: &Home, origin: &str, version: u32) -> Result<()> {
    home.change_settings(|settings| {
        // An earlier one that is not finished stays the one to be finished.
        settings.unfinished_removals.entry(origin.to_owned()).or_insert(version);
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
        let wished = self.home.settings()?.keep_rights.remove(self.client.origin()).unwrap_or_default();
        let taken = self.home.kept_digests(self.client.origin(), self.id);
        let kept = wished.into_iter().filter(|(_, list)| taken.contains(list)).map(|(key, _)| key).collect();
        let all: Vec<Session> =
            self.client.sessions(SessionFilter { active_only: false, shared: true }).try_collect().await?;
        let (sessions, foreign): (Vec<Session>, Vec<Session>) =
            all.into_iter().partition(|session| session.access_level == AccessLevel::Owner);
        let limit = Duration::from_secs(RECENT_DAYS * 24 * 3600);
        let now = self.client.now();
        let is_recent = |session: &Session| session.online || now.since(session.updated_at) < limit;
        // Those that have a new key already need no other one: a program that was killed resumes where it was.
        let (mut wanted, mut later, mut unread) = (Vec::new(), Vec::new(), BTreeMap::new());
        for session in &sessions {
            match self.home.known_session(self.client.origin(), session.id) {
                Ok(known) if !self.is_due(session, Some(&known)) => {}
                Ok(_) => {
                    let is_at_once = is_recent(session) || self.is_without_its_host(session);
                    if is_at_once && wanted.len() < MOST_AT_ONCE { wanted.push(session) } else { later.push(session) }
                }
                // The others get theirs, and the removal stays unfinished.
                Err(why) => unread = Some(why),
            }
        }
        let mut rekeyed = 0;
        for (done, session) in wanted.iter().enumerate() {
            match self.rekey_if_due((*session).clone(), &Members::given_by(&kept)).await {
                Ok(true) => rekeyed += 1,
                Ok(false) => {}
                // Others must get theirs. This one is tried again before its next message.
                Err(why) => self.say(Notice::SessionWithoutNewKey { session: session.reference, why }),
            }
            if (done + 1) % 10 == 0 {
                self.say(Notice::SessionsDone { done: done + 1, of: wanted.len() });
            }
        }
        if !kept.is_empty() {
            self.share_all_again(&later, &kept).await;
        }
        let is_live = |session: &&Session| session.hosted && !self.is_without_its_host(session);
        let (recent, old): (Vec<_>, Vec<_>) = sessions.iter().filter(is_live).partition(|session| is_recent(session));
        let rights = settle_rights(self, &[recent, old].concat(), &kept).await;
        if let Err(error) = machines::renew_keys(self).await {
            self.say(Notice::MachinesWithoutNewKeys(error));
        }
        if let Some(why) = unread {
            return Err(why);
        }
        let newest = self.own().list.version();
        self.home.change_settings(|settings| {
            let origin = self.client.origin();
            if settings.unfinished_removals.get(origin).is_some_and(|version| *version <= newest) {
                settings.unfinished_removals.remove(origin);
                settings.keep_rights.remove(origin);
            }
        })?;
        Ok(Finished { rekeyed, rights, foreign })
    }

    /// Renews the shares that removed devices have made, in sessions that get their new key later.
    async fn share_all_again(&self, sessions: &[&Session], kept: &BTreeSet<String>) {
        for session in sessions.iter().take(MOST_AT_ONCE) {
            if let Err(why) = self.share_again((*session).clone(), kept).await {
                self.say(Notice::SharesMayEnd { session: session.reference, why });
            }
        }
        if sessions.len() > MOST_AT_ONCE {
            self.say(Notice::SharesEnd(sessions.len() - MOST_AT_ONCE));
        }
    }
}
