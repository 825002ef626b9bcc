//! A live session: messages that were opened, checked and folded into what a screen has; and commands that
//! are signed for its machine.

pub mod access;
mod following;
mod history;
pub mod names;
mod owner;
pub mod rights;
mod sender;
mod versions;
mod watch;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_client::devices::Standing;
use ensemble_client::idempotency_key;
use ensemble_protocol::seal::{self, KeyRing, Purpose, SealError};
use ensemble_protocol::transcript::body::{Content, Message as Said};
use ensemble_protocol::transcript::view::{Author, Changed, Incoming, Item, Keep, Shown, Taken, View};
use ensemble_protocol::transcript::{BadBody, Envelope, Frame};
use ensemble_types::devices::Role;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::sessions::Session;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::devices::List;
use crate::error::{Error, Result};
use crate::sessions::{Titled, agent_state};
use crate::sharing::shares;

pub use self::following::Following;
pub use self::history::KeyHints;
use self::history::Waiting;
use self::owner::Owner;
pub use self::sender::Sender;
pub use self::watch::{Watch, Watched};

/// How long a command of this program may wait for the machine's receipt before that is said.
const RECEIPT_WITHIN: Duration = Duration::from_secs(15);

/// A session counts as online for a minute after a sign of its machine (docs/openapi.json, `Session.online`).
pub const SILENT: Duration = Duration::from_secs(65);

/// Within this time a key that the owner's account has never had is not looked for again. A device that was linked since has sent nothing.
const OWNER_KEYS_GOOD_FOR: Duration = Duration::from_millis(500);

fn stranger(user: UserId) -> Author {
    Author::Unknown(format!("not signed by a device of {user}"))
}

/// A session that a machine hosts.
pub struct Live {
    pub me: Account,
    pub session: Session,
    pub view: View,
    ring: KeyRing,
    /// The session's metadata that counts, with its version and the epoch of its key.
    titled: (Titled, (i64, u32)),
    owner: Arc<Owner>,
    /// The authors that were found, by the version of the owner's list, the user and the key.
    signers: HashMap<(u32, UserId, String), Author>,
    names: HashMap<UserId, String>,
    /// The keys that the owner's account has or had, and when they were read.
    owner_keys: Option<(HashSet<String>, Instant)>,
    /// The `seq` of the first message that was taken.
    first: Option<i64>,
    /// The newest key that the server was asked for. It is asked once: a hint tells when the key comes later.
    asked: u32,
    waiting: Option<Waiting>,
    /// What has changed in the view and was not reported to the program yet.
    unreported: Changed,
}

/// A message that was opened and checked.
pub struct Opened {
    pub seq: u64,
    pub author: Author,
    pub body: Option<String>,
    pub message: std::result::Result<Said, BadBody>,
}

impl Live {
    /// Opens a session. Wakes no machine: one that is starting calls it as well.
    pub(crate) async fn open(me: &Account, id: SessionId) -> Result<Self> {
        let session = me.session(id).await?;
        if !session.hosted {
            return Err(Error::NotHosted(session.reference));
        }
        let ring = me.reading_ring(&session).await?;
        let list = me.list_of(session.owner_id).await?;
        let owner = Arc::new(Owner::new(me.client.clone(), session.owner_id, list));
        let titled = me.titled(&session, &ring).await?;
        let titled = (titled, (session.metadata_version, ring.epoch()));
        let view = View::new(Keep::default());
        let (signers, names) = (HashMap::new(), HashMap::new());
        let (owner_keys, first, asked, waiting) = (None, None, 0, None);
        Ok(Self {
            me: me.clone(),
            session,
            view,
            ring,
            titled,
            owner,
            signers,
            names,
            owner_keys,
            first,
            asked,
            waiting,
            unreported: Changed::default(),
        })
    }

    pub fn sender(&self) -> Sender {
        Sender { me: self.me.clone(), session: self.session.id, owner: self.owner.clone() }
    }

    /// Notices devices of the account that come and go, until the returned set is dropped, and wakes who answers invitations. Nothing tells
    /// of those of other accounts.
    pub fn follow_devices(&self, invites: Arc<Notify>) -> JoinSet<()> {
        if self.session.owner_id == self.me.id { self.owner.follow(invites) } else { JoinSet::new() }
    }

    /// The session's title, or the name of its directory.
    pub fn title(&self) -> String {
        let card = self.titled.0.shown();
        let directory = || Some(Path::new(&card.path?).file_name()?.to_string_lossy().into_owned());
        card.title.or_else(directory).unwrap_or_else(|| self.session.reference.to_string())
    }

    /// The session's title, if it has one.
    pub fn given_title(&self) -> Option<String> {
        self.titled.0.title().map(str::to_owned)
    }

    /// What counts of the session's metadata.
    pub fn titled(&self) -> &Titled {
        &self.titled.0
    }

    /// Where the agent works, as the machine has said it and this program shows it: in a state, or in the metadata by which the session
    /// was found.
    pub fn directory(&self) -> Option<String> {
        let state = self.view.state().map(|state| state.directory.clone());
        state.or_else(|| self.titled.0.directory().map(str::to_owned))
    }

    /// Judges the metadata when it, or the session's key, is another one.
    async fn learn_title(&mut self) -> Result<()> {
        let now = (self.session.metadata_version, self.ring.epoch());
        if self.titled.1 != now {
            self.titled = (self.me.titled(&self.session, &self.ring).await?, now);
        }
        Ok(())
    }

    /// Why no agent works in the session now, as its machine says it.
    pub fn problem(&self) -> Option<String> {
        agent_state(&self.ring, &self.session, &self.owner.list()).problem
    }

    /// Opens a live frame. What is none is nothing.
    pub fn frame(&self, content: &str) -> Option<Frame> {
        let opened = seal::open(&self.ring, Purpose::LiveFrame(self.session.id), content);
        opened.ok().as_deref().and_then(Frame::read)
    }

    /// Reads what the server says of the session now.
    pub async fn refresh(&mut self) -> Result<()> {
        self.owner.may_have_changed();
        self.session = self.me.session(self.session.id).await?;
        // A title is signed for the key of now. A guest may not have been given it yet.
        if self.session.key_epoch > i64::from(self.ring.epoch()) {
            match self.me.reading_ring(&self.session).await {
                Ok(ring) => self.ring = ring,
                Err(failure @ Error::Client(_)) => return Err(failure),
                Err(_) => return Ok(()),
            }
        }
        self.learn_title().await
    }

    /// Opens a message and finds out who has signed it. An error: the epoch of its key, which has not come yet.
    async fn opened(&mut self, message: &Message) -> Result<std::result::Result<Opened, u32>> {
        let unsigned = |why| Opened::unsigned(message.seq, why);
        let opened = match self.unseal(message).await? {
            Ok(opened) => opened,
            // A key that the session has never had does not come.
            Err(SealError::UnknownEpoch(epoch))
                if epoch > self.ring.epoch() && i64::from(epoch) <= self.session.key_epoch =>
            {
                return Ok(Err(epoch));
            }
            Err(error) => return Ok(Ok(unsigned(error.to_string()))),
        };
        let envelope = match Envelope::open(self.session.id, &opened) {
            Ok(envelope) => envelope,
            Err(why) => return Ok(Ok(unsigned(why.to_string()))),
        };
        let said = envelope.message();
        if said.as_ref().is_ok_and(|said| said.local_id != message.local_id) {
            return Ok(Ok(unsigned("it was signed under another id".to_owned())));
        }
        let author = self.author(envelope.user, &envelope.key).await?;
        if let (Author::Host, Ok(said)) = (&author, &said) {
            self.owner.learn(said.list.version).await?;
        }
        let seq = u64::try_from(message.seq).unwrap_or_default();
        Ok(Ok(Opened { seq, author, body: Some(envelope.body), message: said }))
    }

    async fn unseal(&mut self, message: &Message) -> Result<std::result::Result<Vec<u8>, SealError>> {
        let purpose = Purpose::Message(self.session.id);
        let opened = seal::open(&self.ring, purpose, &message.content);
        match opened {
            // The key was changed in the meantime.
            Err(SealError::UnknownEpoch(epoch)) if epoch > self.asked => {
                self.refresh().await?;
                self.asked = epoch;
                Ok(seal::open(&self.ring, purpose, &message.content))
            }
            opened => Ok(opened),
        }
    }

    /// Whose key it is, according to the newest known list. A key that was ever in a list counts for what it has signed; the machine
    /// decides about commands by the newest lists.
    async fn author(&mut self, user: UserId, key: &str) -> Result<Author> {
        let signer = (self.owner.list().version(), user, key.to_owned());
        if let Some(known) = self.signers.get(&signer) {
            return Ok(known.clone());
        }
        let author = self.find_author(user, key).await?;
        // A device of the owner may still be linked.
        if !matches!(author, Author::Unknown(_)) || !self.owner.is(user) {
            self.signers.insert(signer, author.clone());
        }
        Ok(author)
    }

    async fn find_author(&mut self, user: UserId, key: &str) -> Result<Author> {
        let person = |removed_in| Author::Person { user, key: key.to_owned(), removed_in };
        if user == self.session.owner_id {
            let (machine, list) = (self.session.machine_id.clone(), self.owner.list());
            let machine = machine.as_ref();
            let is_host = |list: &List| {
                list.device(key).is_some_and(|device| {
                    device.role == Role::Machine && device.machine_id.is_some() && device.machine_id.as_ref() == machine
                })
            };
            if is_host(&list) {
                return Ok(Author::Host);
            }
            if shares(&list, key) {
                return Ok(person(None));
            }
            let account = &list.body().account;
            if !self.is_owner_key(user, account, key).await? {
                return Ok(stranger(user));
            }
            match self.me.client.standing(user, account, key).await? {
                // It was added since this list was read.
                Standing::Listed => return Ok(person(None)),
                Standing::Removed(version) => return Ok(person(Some(version))),
                Standing::Never => {}
            }
            // Of a machine that was removed nothing is hosted any more, so its transcript can be read. One that has another key now
            // signs with that.
            let is_replaced = list.body().devices.iter().any(|device| device.machine_id.as_ref() == machine);
            if !is_replaced && self.me.client.ever_made(user, account, key, machine).await? {
                return Ok(Author::Host);
            }
        } else if let Ok(list) = self.me.list_of(user).await
            && (shares(&list, key) || self.me.client.ever_shared(user, &list.body().account, key).await?)
        {
            return Ok(person(None));
        }
        Ok(stranger(user))
    }

    /// Whether the owner's account has or had this key. A session may have many messages of made-up keys, so they do not each
    /// cost a request.
    async fn is_owner_key(&mut self, owner: UserId, account: &str, key: &str) -> Result<bool> {
        let known = self.owner_keys.as_ref();
        if known.is_none_or(|(keys, read)| !keys.contains(key) && read.elapsed() >= OWNER_KEYS_GOOD_FOR) {
            let devices = self.me.client.every_device(owner, account).await?;
            self.owner_keys = Some((devices.into_iter().map(|device| device.key).collect(), Instant::now()));
        }
        Ok(self.owner_keys.as_ref().is_some_and(|(keys, _)| keys.contains(key)))
    }

    /// Signs and sends a command. Returns its `localId` and its `seq`.
    pub async fn send(&self, content: Content) -> Result<(String, i64)> {
        self.sender().send(content).await
    }

    /// Signs and sends a command, and waits for the machine's receipt.
    pub async fn command(&mut self, content: Content) -> Result<Taken> {
        self.command_as(idempotency_key(), content).await
    }

    /// The same with a `localId` that the caller has chosen.
    pub(crate) async fn command_as(&mut self, local_id: String, content: Content) -> Result<Taken> {
        let (local_id, seq) = self.sender().send_as(local_id, content).await?;
        let after = self.view_end().min(seq - 1);
        let mut events = std::pin::pin!(self.me.client.follow_session(self.session.id, Some(after)));
        let mut keys = KeyHints::new(self.me.client.clone(), self.session.id);
        let receipt = async {
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(event) => drop(self.event(event?).await?),
                        None => break,
                    },
                    () = keys.next(self.is_waiting()) => drop(self.renew().await?),
                }
                match self.taken(&local_id) {
                    None | Some(Taken::NotYet) => {}
                    Some(taken) => return Ok(taken),
                }
            }
            Ok::<_, Error>(Taken::NotYet)
        };
        let taken = tokio::time::timeout(RECEIPT_WITHIN, receipt).await.unwrap_or(Ok(Taken::NotYet))?;
        if taken == Taken::NotYet {
            // What changed between reading the session and following it came in no event.
            self.refresh().await?;
        }
        Ok(taken)
    }

    /// What has become of a command of this device.
    pub fn taken(&self, local_id: &str) -> Option<Taken> {
        let own = self.me.key.public_key();
        let is_own = |item: &&Item| {
            item.local_id == local_id && matches!(&item.author, Author::Person { key, .. } if *key == own)
        };
        self.view.items().rev().find(is_own).and_then(|item| match &item.shown {
            Shown::Prompt(_, taken) | Shown::Answer(_, taken) | Shown::Control(_, taken) => Some(taken.clone()),
            _ => None,
        })
    }

    fn view_end(&self) -> i64 {
        self.view.items().next_back().map_or(i64::MAX, |item| i64::try_from(item.seq).unwrap_or(i64::MAX))
    }
}

impl Opened {
    pub(crate) fn unsigned(seq: i64, why: String) -> Self {
        let (seq, nothing) = (u64::try_from(seq).unwrap_or_default(), "it is not signed".to_owned());
        Self { seq, author: Author::Unknown(why), body: None, message: Err(BadBody::Malformed(nothing)) }
    }

    pub fn incoming(self) -> Incoming {
        let Self { seq, author, body, message } = self;
        let digest = body.as_deref().map(ensemble_protocol::transcript::digest).unwrap_or_default();
        Incoming { seq, author, digest, message }
    }
}
