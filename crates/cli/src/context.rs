//! The context of a command: the settings, and a client that is signed in.

use std::sync::{Arc, LazyLock};

use ensemble_account::settings::{KnownAccount, LinkedMachine};
use ensemble_account::{Account, Begun, Error, Wanted};
use ensemble_client::{Client, Clock, Retry};
use ensemble_types::time::Timestamp;
use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result, begin, is_loopback};
use crate::global::Global;
use crate::home::Home;
use crate::says;

/// The server if no other is chosen.
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
    Default,
}

/// A machine that works for an account whose key is elsewhere.
pub(crate) struct Linked {
    pub(crate) origin: String,
    pub(crate) machine: LinkedMachine,
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
        Ok(chosen.or(local).unwrap_or_else(|| (DEFAULT_SERVER.to_owned(), ChosenBy::Default)))
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

    /// This machine, if it was linked at this server and no account is signed in here.
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
        })?;
        Ok(())
    }

    /// This machine, if it was linked at this server. Its runner works for that account, even if another account signs in here.
    pub(crate) fn linked_here(&self) -> Result<Option<Linked>> {
        let (client, _) = self.account()?;
        let origin = client.origin().to_owned();
        let machine = self.home.settings()?.linked_machines.remove(&origin);
        Ok(machine.map(|machine| Linked { origin, machine }))
    }

    /// Signs in with the account that is signed in at this server, and finishes what other commands have begun. Never creates an account.
    pub(crate) async fn me(&self) -> Result<Account> {
        let me = self.signed_in().await?;
        me.finish().await?;
        Ok(me)
    }

    /// The same, and finishes nothing: for a program that another command waits for.
    pub(crate) async fn signed_in(&self) -> Result<Account> {
        match Account::open(&self.home, anonymous(self.server()?.0)?).await {
            // Nothing is sent before a sign-in, so it is not known whether a server answers.
            Err(Error::NotSignedIn { origin }) if is_loopback(&origin) && self.home.key()?.is_none() => {
                Err(Failure::message(begin(&origin)))
            }
            opened => opened.map_err(|error| self.typed_out(error)),
        }
    }

    /// As [`Self::me`] with a token that was just given.
    pub(crate) async fn me_with_new_token(&self) -> Result<Account> {
        let renewed = self.signed_in().await?.with_new_token().await;
        let me = renewed.map_err(|error| self.typed_out(error))?;
        me.finish().await?;
        Ok(me)
    }

    /// Signs in, and remembers it. Creates the account key unless one exists or was lost.
    pub(crate) async fn begin(&self, client: Client, wanted: Wanted) -> Result<Begun> {
        Account::begin(&self.home, client, wanted).await.map_err(|error| self.typed_out(error))
    }

    /// What `up` signs in with: the key that is here, of whichever account. Fails before anything is started if the key
    /// is lost.
    #[cfg(feature = "up")]
    pub(crate) fn wanted_by_up(&self, new_account: bool) -> Result<Wanted> {
        match self.home.key()? {
            Some(key) => return Ok(Wanted::ImportAnother(key)),
            None if new_account => return Ok(Wanted::NewAccount),
            None => {}
        }
        let origin = self.account().map(|(client, _)| client.origin().to_owned()).unwrap_or_default();
        ensemble_account::check_unused(&self.home, &origin).map(|()| Wanted::Usual).map_err(|error| {
            Failure::message(format!(
                "{} While no server runs: copy the key there yourself (mode 0600), or begin a new account with `ensemble up --new-account`.",
                self.typed_out(error)
            ))
        })
    }

    /// A failure with the commands for this server.
    fn typed_out(&self, error: Error) -> Failure {
        match error {
            Error::Client(_) => error.into(),
            _ => Failure::message(says::error_at(&error, &|command| self.typed(command))),
        }
    }
}

/// A client without an identity.
pub(crate) fn anonymous(server: String) -> Result<Client> {
    Ok(builder(server).build()?)
}

/// The same, and each call is tried once.
pub(crate) fn once(server: String) -> Result<Client, ensemble_client::Error> {
    builder(server).retry(Retry::never()).build()
}

/// Whether a server answers at this address now.
pub(crate) async fn answers(server: &str) -> bool {
    match once(server.to_owned()) {
        Ok(client) => client.version().await.is_ok(),
        Err(_) => false,
    }
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

/// Waits for Ctrl-C, also for one that comes before it is asked.
pub(crate) fn interrupted() -> Result<impl Future<Output = ()>> {
    signalled(&[SignalKind::interrupt()])
}

/// Waits for the first of these signals, also for one that comes before it is asked.
pub(crate) fn signalled(kinds: &[SignalKind]) -> Result<impl Future<Output = ()> + use<>> {
    let mut signals = listened(kinds)?;
    Ok(async move { first_of(&mut signals).await })
}

/// Receives these signals from now on.
pub(crate) fn listened(kinds: &[SignalKind]) -> Result<Vec<Signal>> {
    let signals: std::io::Result<_> = kinds.iter().map(|kind| signal(*kind)).collect();
    signals.map_err(|error| Failure::message(format!("Cannot listen for signals: {error}.")))
}

pub(crate) async fn first_of(signals: &mut [Signal]) {
    select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
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
