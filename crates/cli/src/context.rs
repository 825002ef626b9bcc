//! The context of a command: the settings, and a client that is signed in.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_client::{Client, Clock, Credential, Retry, Token};
use ensemble_protocol::AccountKey;
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::time::Timestamp;
use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex as AsyncMutex;

use crate::account;
use crate::commands::devices::finish_removal;
use crate::devices;
use crate::failure::{Failure, Result, begin, is_loopback};
use crate::global::Global;
use crate::home::{Home, Owner};
use crate::kept_lists::BEHIND;
use crate::live::access;
use crate::print;
use crate::settings::{KnownAccount, LinkedMachine, Occasion, StoredToken};
use crate::sharing::People;

/// The server when none is given.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The options of this invocation and the stored settings.
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) json: bool,
    server: Option<String>,
    /// Whether the server was named by an option, so that advice has to name it too.
    is_option: bool,
}

/// What chose the server of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Option,
    Environment,
    Login,
    Up,
    Nobody,
}

/// A machine that works for an account whose key is elsewhere.
pub(crate) struct Linked {
    pub(crate) origin: String,
    pub(crate) machine: LinkedMachine,
}

/// A signed-in user.
pub(crate) struct Me {
    pub(crate) client: Client,
    pub(crate) key: AccountKey,
    pub(crate) id: UserId,
    /// The key that names the account.
    account: String,
    /// The account's devices and content keys, and when they were read. A program may be open for days.
    own: Mutex<(Arc<devices::Own>, Instant)>,
    /// The devices that the account has or had, when they were asked for.
    pub(crate) every_device: AsyncMutex<Option<(Arc<[ListedDevice]>, Instant)>>,
    /// The devices of others.
    pub(crate) people: People,
}

impl Me {
    pub(crate) fn new(client: Client, key: AccountKey, id: UserId, own: devices::Own) -> Self {
        let account = own.list.body().account.clone();
        let own = Mutex::new((Arc::new(own), Instant::now()));
        Self { client, key, id, account, own, every_device: AsyncMutex::default(), people: People::default() }
    }

    /// The account's devices and content keys, as they were read last.
    pub(crate) fn own(&self) -> Arc<devices::Own> {
        self.lock_own().0.clone()
    }

    fn lock_own(&self) -> MutexGuard<'_, (Arc<devices::Own>, Instant)> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads them again, when they are older than this. Another program of the person may have removed a device.
    pub(crate) async fn refresh_own(&self, context: &Context, max_age: Duration) -> Result<()> {
        if self.lock_own().1.elapsed() < max_age {
            return Ok(());
        }
        let read = devices::own(context, &self.client, &self.key, self.id).await?;
        let mut own = self.lock_own();
        own.1 = Instant::now();
        if read.list.version() >= own.0.list.version() {
            own.0 = Arc::new(read);
        }
        Ok(())
    }

    /// Takes the list that this device has just signed, with the contents of the one before.
    pub(crate) fn has_signed(&self, list: devices::List) {
        let mut own = self.lock_own();
        if list.version() > own.0.list.version() {
            own.0 = Arc::new(devices::Own { list, contents: own.0.contents.clone() });
        }
    }

    /// Whose machines this computer can be.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner { user: self.id, account: &self.account }
    }
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self> {
        // An empty variable is one that is not set.
        let global = Global { server: global.server.filter(|server| !server.is_empty()), ..global };
        let variable = std::env::var_os("ENSEMBLE_SERVER");
        let is_option =
            global.server.as_ref().is_some_and(|server| variable.is_none_or(|variable| variable != **server));
        Ok(Self { home: Home::find(global.home)?, json: global.json, server: global.server, is_option })
    }

    /// The server's address, and what chose it.
    pub(crate) fn server(&self) -> Result<(String, ChosenBy)> {
        if let Some(server) = &self.server {
            let by = if self.is_option { ChosenBy::Option } else { ChosenBy::Environment };
            return Ok((server.clone(), by));
        }
        let settings = self.home.settings()?;
        let chosen = settings.server.map(|server| (server, ChosenBy::Login));
        let local = settings.local_server.map(|server| (server, ChosenBy::Up));
        Ok(chosen.or(local).unwrap_or_else(|| (DEFAULT_SERVER.to_owned(), ChosenBy::Nobody)))
    }

    /// The same context for another server.
    #[cfg(feature = "up")]
    pub(crate) fn at(&self, server: &str) -> Self {
        let server = Some(server.to_owned());
        Self { home: self.home.clone(), json: self.json, server, is_option: self.is_option }
    }

    /// A failure, or what is wrong with the address that the server was called by: people copy that of a page.
    pub(crate) async fn explained(&self, failure: Failure) -> Failure {
        let Ok((server, _)) = self.server() else { return failure };
        let Ok(client) = anonymous(server.clone()) else { return failure };
        let is_page = !client.base().path().trim_matches('/').is_empty();
        let origin = client.origin();
        if !matches!(failure, Failure::Client(_)) || !is_page || answers(&server).await || !answers(origin).await {
            return failure;
        }
        Failure::message(format!(
            "There is no Ensemble at {server}, but there is one at {origin}. Use that: --server {origin}."
        ))
    }

    /// How to type a command for the server of this invocation: `ensemble login`, or with --server.
    pub(crate) fn typed(&self, command: &str) -> String {
        match &self.server {
            Some(server) if self.is_option => format!("ensemble --server {server} {command}"),
            _ => format!("ensemble {command}"),
        }
    }

    /// The account of this machine at the server, if it is signed in. Sends nothing.
    pub(crate) fn account(&self) -> Result<(Client, Option<KnownAccount>)> {
        let client = anonymous(self.server()?.0)?;
        let account = self.home.settings()?.accounts.remove(client.origin());
        Ok((client, account))
    }

    /// This machine, if it was linked at this server and nobody is signed in here.
    pub(crate) fn linked_machine(&self) -> Result<Option<Linked>> {
        let is_signed_in = self.account()?.1.is_some_and(|account| account.signed_in);
        if is_signed_in { Ok(None) } else { self.linked_here() }
    }

    /// Forgets that this machine was linked, with its key.
    pub(crate) fn forget_link(&self, linked: &Linked) -> Result<()> {
        let path = self.home.linked_key_path(&linked.origin, &linked.machine.machine);
        if path.exists() {
            std::fs::remove_file(&path)
                .map_err(|error| Failure::message(format!("Cannot remove {}: {error}.", path.display())))?;
        }
        self.home.change_settings(|settings| {
            settings.linked_machines.remove(&linked.origin);
        })
    }

    /// This machine, if it was linked at this server. Its runner works for that account, also when somebody signs in with another one.
    pub(crate) fn linked_here(&self) -> Result<Option<Linked>> {
        let (client, _) = self.account()?;
        let origin = client.origin().to_owned();
        let machine = self.home.settings()?.linked_machines.remove(&origin);
        Ok(machine.map(|machine| Linked { origin, machine }))
    }

    /// Signs in with the account that is signed in at this server, and finishes what other commands have begun. Never creates an account.
    pub(crate) async fn me(&self) -> Result<Me> {
        let me = self.signed_in().await?;
        self.finish(&me).await?;
        Ok(me)
    }

    /// The same, and finishes nothing: for a program that another command waits for.
    pub(crate) async fn signed_in(&self) -> Result<Me> {
        let key = self.home.key()?;
        let (client, account) = self.account()?;
        let Some(account) = account.filter(|account| account.signed_in) else {
            // Nothing is sent before a sign-in, so it is not known whether a server answers.
            if key.is_none() && is_loopback(client.origin()) {
                return Err(Failure::message(begin(client.origin())));
            }
            return Err(Failure::message(format!(
                "You are not signed in at {}. Run `{}`.",
                client.origin(),
                self.typed("login")
            )));
        };
        let key = account::expected(self, client.origin(), &account, key)?;
        let stored = self.home.tokens().remove(client.origin());
        let client = client.with_credential(Credential::Device(key.clone()));
        let client = match stored.filter(|stored| stored.public_key == key.public_key()) {
            Some(stored) => with(&client, &stored),
            None => client,
        };
        self.renew(client, key, &account).await
    }

    /// As [`Self::me`] with a token that was just given.
    pub(crate) async fn me_with_new_token(&self) -> Result<Me> {
        let me = self.signed_in().await?;
        let (client, account) = self.account()?;
        match account {
            Some(account) => {
                let client = client.with_credential(Credential::Device(me.key.clone()));
                let me = self.renew(client, me.key, &account).await?;
                self.finish(&me).await?;
                Ok(me)
            }
            None => Ok(me),
        }
    }

    async fn renew(&self, client: Client, key: AccountKey, account: &KnownAccount) -> Result<Me> {
        let token = client.sign_in().await.map_err(|error| {
            // A device that was linked is in no list of a server that was restored to a time before.
            let known = self.home.known_list(client.origin(), account.user_id).ok().flatten();
            if error.is(Code::UserNotFound) && known.is_some_and(|list| list.body().account != key.public_key()) {
                Failure::message(BEHIND)
            } else if error.is(Code::UserNotFound) {
                Failure::message(format!(
                    "{} no longer has your account {}. `{}` makes a new one with your key.",
                    client.origin(),
                    account.user_id,
                    self.typed("login")
                ))
            } else {
                error.into()
            }
        })?;
        if token.user_id != account.user_id {
            return Err(Failure::message(format!(
                "{} says that your key belongs to another account now, and not to {}. Nothing was done. Ask its operator.",
                client.origin(),
                account.user_id
            )));
        }
        let stored = self.home.tokens().remove(client.origin());
        if stored.is_none_or(|stored| stored.token != token.token.expose_secret()) {
            self.home.remember(&client, &key, &token, Occasion::Renewal)?;
        }
        let own = devices::own(self, &client, &key, token.user_id).await?;
        Ok(Me::new(client, key, token.user_id, own))
    }

    /// Finishes what commands before have begun: revocations, keys, removals of devices.
    async fn finish(&self, me: &Me) -> Result<()> {
        if let Err(failure) = Box::pin(access::tell_again(self, me)).await {
            print::note(format!(
                "A machine does not know yet who may not command it any more: {failure} The next command tries again."
            ));
        }
        if let Err(failure) = me.finish_rekeys(self).await {
            print::note(format!(
                "Some people have not got the new key of a session: {failure} The next command tries again."
            ));
        }
        let unfinished = self.home.settings()?.unfinished_removals.remove(me.client.origin());
        // A list that the server has not taken removes nobody.
        let is_due = unfinished.is_some_and(|version| version <= me.own().list.version());
        // Another command may be at it.
        let lock = if is_due { self.home.try_lock(devices::REMOVAL_LOCK)? } else { None };
        if lock.is_some() {
            print::note("Finishing the removal of a device: sessions get new keys.");
            // The command that was typed must not fail because of it.
            if let Err(failure) = finish_removal(self, me).await {
                print::note(format!("It could not be finished: {failure} The next command tries again."));
            }
        }
        Ok(())
    }
}

/// A client without an identity.
pub(crate) fn anonymous(server: String) -> Result<Client> {
    Ok(builder(server).build()?)
}

/// The same, and each call is tried once.
pub(crate) fn once(server: String) -> Result<Client> {
    Ok(builder(server).retry(Retry::never()).build()?)
}

/// Whether a server answers at this address now.
pub(crate) async fn answers(server: &str) -> bool {
    match once(server.to_owned()) {
        Ok(client) => client.version().await.is_ok(),
        Err(_) => false,
    }
}

/// The same client with a token of an earlier process.
pub(crate) fn with(client: &Client, stored: &StoredToken) -> Client {
    let remaining = stored.expires_at.since(now());
    client.with_token(Token::stored(stored.token.clone().into(), stored.user_id, stored.expires_at, remaining))
}

/// People wait for the command, so an unreachable server is reported after a second or two.
fn builder(server: String) -> ensemble_client::ClientBuilder {
    let retry = Retry { attempts: 5, ..Retry::default() };
    Client::builder(server)
        .retry(retry)
        .clock(CLOCK.clone())
        .user_agent(concat!("ensemble/", env!("CARGO_PKG_VERSION")))
}

/// Receives Ctrl-C from now on. A signal that arrives while nothing waits is stored.
pub(crate) fn interrupts() -> Result<Signal> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::message(format!("Cannot listen for Ctrl-C: {error}.")))
}

/// Receives the hang-up of a terminal that is closed from now on. `None`: this process was started to outlive its terminal (`nohup`).
#[cfg(feature = "up")]
pub(crate) fn hang_ups() -> Result<Option<Signal>> {
    // proc_pid_status(5): a mask in hexadecimal digits, whose lowest bit is the signal 1, SIGHUP.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    if ignored.is_some_and(|mask| mask & 1 == 1) {
        return Ok(None);
    }
    let listened = signal(SignalKind::hangup());
    listened.map(Some).map_err(|error| Failure::message(format!("Cannot listen for hang-ups: {error}.")))
}

/// What the clients of a command have measured: it has one server.
static CLOCK: LazyLock<Arc<Clock>> = LazyLock::new(Arc::default);

/// The time by the server's clock, once the server has answered, and else by this computer's. Machines refuse what is signed with a wrong
/// time.
pub(crate) fn now() -> Timestamp {
    CLOCK.now()
}
