//! An account that is signed in on this device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_client::{Client, Credential, Token};
use ensemble_protocol::{AccountKey, seal};
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::problem::Code;
use secrecy::ExposeSecret;
use tokio::sync::Mutex as AsyncMutex;

use crate::devices::{self, Own};
use crate::error::{Error, Result};
use crate::home::{Home, Owner};
use crate::live::Live;
use crate::notice::Notice;
use crate::opening::expected;
use crate::removal::Finished;
use crate::settings::{Occasion, StoredToken};
use crate::sharing::People;

/// All devices that an account has or had, and when they were read.
type EveryDevice = (Arc<[ListedDevice]>, Instant);

/// A signed-in user. Clones share what they know.
#[derive(Clone)]
pub struct Account {
    pub client: Client,
    pub key: AccountKey,
    pub id: UserId,
    pub home: Home,
    /// The key that names the account.
    account: Arc<str>,
    place: Arc<str>,
    /// The account's devices and content keys, and when they were read. A program may be open for days.
    own: Arc<Mutex<(Arc<Own>, Instant)>>,
    /// The devices that the account has or had, when they were asked for.
    pub(crate) every_device: Arc<AsyncMutex<Option<EveryDevice>>>,
    /// The devices of others.
    pub(crate) people: Arc<People>,
}

impl Account {
    /// # Errors
    /// The settings cannot be read.
    pub fn new(home: &Home, client: Client, key: AccountKey, id: UserId, own: Own) -> Result<Self> {
        let account = own.list.body().account.as_str().into();
        let own = Arc::new(Mutex::new((Arc::new(own), Instant::now())));
        let (place, home) = (home.place(client.origin(), id)?.into(), home.clone());
        Ok(Self { client, key, id, home, account, place, own, every_device: Arc::default(), people: Arc::default() })
    }

    /// Where this computer keeps what it knows of the account ([`Home::place`]).
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The account that this computer uses at the client's server. Makes none, and finishes nothing that other programs have begun:
    /// [`Self::finish`] does. The token of an earlier program is used while it is good.
    ///
    /// # Errors
    /// [`Error::NotSignedIn`]: no user is signed in there. [`Error::KeyLost`], [`Error::OtherKeyHere`]: the account's key is not on this
    /// computer.
    pub async fn open(home: &Home, client: Client) -> Result<Self> {
        let (known, key) = (home.settings()?.accounts.remove(client.origin()), home.key()?);
        let Some(known) = known.filter(|known| known.signed_in) else {
            return Err(Error::NotSignedIn { origin: client.origin().to_owned() });
        };
        let key = expected(home, client.origin(), &known, key)?;
        let client = client.with_credential(Credential::Device(key.clone()));
        let stored = home.tokens().remove(client.origin());
        let client = match stored.filter(|stored| stored.public_key == key.public_key()) {
            Some(stored) => with_token(&client, &stored),
            None => client,
        };
        Self::renewed(home, client, key, known.user_id).await
    }

    /// The same account with a token that was just given.
    pub async fn with_new_token(&self) -> Result<Self> {
        let client = self.client.with_credential(Credential::Device(self.key.clone()));
        Self::renewed(&self.home, client, self.key.clone(), self.id).await
    }

    /// The same with the credential that the client has.
    async fn renewed(home: &Home, client: Client, key: AccountKey, user: UserId) -> Result<Self> {
        let origin = client.origin().to_owned();
        let token = match client.sign_in().await {
            Ok(token) => token,
            Err(error) if error.is(Code::UserNotFound) => {
                // A device that was linked is in no list of a server that was restored to a time before.
                let list = home.known_list(&home.place(&origin, user)?, user).ok().flatten();
                let is_linked = list.is_some_and(|list| list.body().account != key.public_key());
                return Err(if is_linked { Error::ServerBehind } else { Error::NoAccount { origin, user } });
            }
            Err(error) => return Err(error.into()),
        };
        if token.user_id != user {
            return Err(Error::AnotherAccount { origin, user });
        }
        let stored = home.tokens().remove(&origin);
        if stored.is_none_or(|stored| stored.token != token.token.expose_secret()) {
            home.remember(&client, &key, &token, Occasion::Renewal)?;
        }
        let own = devices::own(home, &client, &key, user).await?;
        Self::new(home, client, key, user, own)
    }

    /// Finishes what other programs of the person have begun: revocations, keys, removals of devices. What cannot be finished now is a
    /// notice: it stops nothing else.
    ///
    /// # Errors
    /// The directory cannot be read or locked.
    pub async fn finish(&self) -> Result<()> {
        if let Err(error) = Box::pin(crate::live::access::tell_again(self)).await {
            self.say(Notice::RevocationUnfinished(error));
        }
        if let Err(error) = self.finish_rekeys().await {
            self.say(Notice::KeysUnfinished(error));
        }
        if let Err(error) = self.finish_share_removals().await {
            self.say(Notice::GuestKeepsKey(error));
        }
        let unfinished = self.home.settings()?.unfinished_removals.remove(self.place());
        // A list that the server has not taken removes no device.
        let is_due = unfinished.is_some_and(|version| version <= self.own().list.version());
        // Another program may be at it.
        let lock = if is_due { self.home.store().try_lock(devices::REMOVAL_LOCK)? } else { None };
        if lock.is_some() {
            self.say(Notice::FinishingRemoval);
            if let Err(error) = Box::pin(self.finish_removal()).await.and_then(Finished::whole) {
                self.say(Notice::RemovalUnfinished(error));
            }
        }
        Ok(())
    }

    /// Opens a session in which an agent works. Wakes no machine: that is for the caller.
    pub async fn live(&self, session: SessionId) -> Result<Live> {
        Live::open(self, session).await
    }

    /// The account's devices and content keys, as they were read last.
    pub fn own(&self) -> Arc<Own> {
        self.lock_own().0.clone()
    }

    fn lock_own(&self) -> MutexGuard<'_, (Arc<Own>, Instant)> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads them again, when they are older than this. Another program of the person may have removed a device.
    pub async fn refresh_own(&self, max_age: Duration) -> Result<()> {
        if self.lock_own().1.elapsed() < max_age {
            return Ok(());
        }
        let read = devices::own(&self.home, &self.client, &self.key, self.id).await?;
        let mut own = self.lock_own();
        own.1 = Instant::now();
        if read.list.version() >= own.0.list.version() {
            own.0 = Arc::new(read);
        }
        Ok(())
    }

    /// Takes the list that this device has just signed, with its contents.
    pub(crate) fn has_signed(&self, signed: Own) {
        let mut own = self.lock_own();
        if signed.list.version() > own.0.list.version() {
            own.0 = Arc::new(signed);
        }
    }

    /// The fingerprint of the key that names the account. People compare it.
    pub fn fingerprint(&self) -> Result<String> {
        fingerprint(&self.account)
    }

    /// Whose machines this computer can be.
    pub fn owner(&self) -> Owner<'_> {
        Owner { user: self.id, account: &self.account }
    }

    pub(crate) fn say(&self, notice: Notice) {
        self.home.say(notice);
    }
}

/// The fingerprint of an account's public key.
pub fn fingerprint(public_key: &str) -> Result<String> {
    seal::fingerprint(public_key).map_err(|error| Error::Seal("The user's key".to_owned(), error))
}

/// The same client with a token of an earlier program.
pub fn with_token(client: &Client, stored: &StoredToken) -> Client {
    let remaining = stored.expires_at.since(client.now());
    client.with_token(Token::stored(stored.token.clone().into(), stored.user_id, stored.expires_at, remaining))
}
