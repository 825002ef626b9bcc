//! The context of a command: the settings, and a client that is signed in.

use std::time::Duration;

use ensemble_client::{AccountKey, Client, Credential, Retry, Token};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::TryStreamExt;
use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result};
use crate::global::Global;
use crate::home::{Home, StoredToken};

/// The server when none is given.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The options of this invocation and the stored settings.
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) json: bool,
    server: Option<String>,
}

/// A signed-in user.
pub(crate) struct Me {
    pub(crate) client: Client,
    pub(crate) key: AccountKey,
    pub(crate) id: UserId,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self> {
        Ok(Self { home: Home::find(global.home)?, json: global.json, server: global.server })
    }

    /// The server's address: from the option, from the last login, or the default.
    pub(crate) fn server(&self) -> Result<String> {
        Ok(match &self.server {
            Some(server) => server.clone(),
            None => self.home.settings()?.server.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        })
    }

    /// The same context for another server.
    #[cfg(feature = "up")]
    pub(crate) fn at(&self, server: &str) -> Self {
        Self { home: self.home.clone(), json: self.json, server: Some(server.to_owned()) }
    }

    /// Signs in with the account key of this machine. Creates the key if there is none.
    #[cfg(feature = "up")]
    pub(crate) async fn sign_in_or_register(&self) -> Result<Me> {
        let key = self.home.key()?;
        let is_new = key.is_none();
        if is_new {
            self.home.check_writable()?;
        }
        let me = self.sign_in(key.unwrap_or_else(AccountKey::generate)).await?;
        if is_new {
            self.home.store_key(&me.key)?;
        }
        me.client.publish_content_key(&me.key).await?;
        Ok(me)
    }

    /// Signs in with the account key of this machine.
    pub(crate) async fn me(&self) -> Result<Me> {
        let key = self.home.key()?.ok_or_else(|| {
            Failure::message("You are not signed in, and there is no account key yet. Run `ensemble login`.")
        })?;
        self.sign_in(key).await
    }

    /// Signs in with `key`, or reuses the last token if it is still valid.
    pub(crate) async fn sign_in(&self, key: AccountKey) -> Result<Me> {
        let client = builder(self.server()?).credential(Credential::Account(key.clone())).build()?;
        let stored = self
            .home
            .token()
            .filter(|stored| stored.origin == client.origin() && stored.public_key == key.public_key());
        let client = match &stored {
            Some(stored) => with(&client, stored),
            None => client,
        };
        let token = client.sign_in().await?;
        if stored.is_none_or(|stored| stored.token != token.token.expose_secret()) {
            self.home.store_token(&StoredToken {
                origin: client.origin().to_owned(),
                public_key: key.public_key(),
                user_id: token.user_id,
                token: token.token.expose_secret().to_owned(),
                expires_at: token.expires_at,
            })?;
        }
        Ok(Me { client, key, id: token.user_id })
    }

    /// A client with the token of the last sign-in at this server, if there is one.
    pub(crate) fn stored_client(&self) -> Result<Option<Client>> {
        let client = builder(self.server()?).build()?;
        Ok(self.home.token().filter(|stored| stored.origin == client.origin()).map(|stored| with(&client, &stored)))
    }

    /// The machine to use when none is named: this one, or the only one.
    pub(crate) async fn default_machine(&self, me: &Me) -> Result<MachineId> {
        if let Some(machine) = self.home.settings()?.machines.remove(me.client.origin()) {
            return Ok(machine);
        }
        let machines: Vec<_> = me.client.machines().try_collect().await?;
        match machines.as_slice() {
            [only] => Ok(only.id.clone()),
            [] => Err(Failure::message("You have no machines. Register this one with `ensemble machine register`.")),
            _ => Err(Failure::message(
                "You have several machines. Name one with --machine; `ensemble machine list` shows them.",
            )),
        }
    }
}

fn with(client: &Client, stored: &StoredToken) -> Client {
    let remaining = stored.expires_at.since(now());
    client.with_token(Token::stored(stored.token.clone().into(), stored.user_id, stored.expires_at, remaining))
}

/// People wait for the command, so an unreachable server is reported after a second or two.
fn builder(server: String) -> ensemble_client::ClientBuilder {
    let retry = Retry { attempts: 5, ..Retry::default() };
    Client::builder(server).retry(retry).user_agent(concat!("ensemble/", env!("CARGO_PKG_VERSION")))
}

/// Receives Ctrl-C from now on. A signal that arrives while nothing waits is stored.
pub(crate) fn interrupts() -> Result<Signal> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::message(format!("Cannot listen for Ctrl-C: {error}.")))
}

/// The clock of this machine. It only decides whether a stored token is tried.
#[expect(clippy::disallowed_methods, reason = "a command line has no clock but the system's")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_micros(0).plus(since)
}
