//! What a command works with: the settings, and a client that is signed in.

use std::time::Duration;

use ensemble_client::{AccountKey, Client, Credential, Retry, Token};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::TryStreamExt;
use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::Global;
use crate::failure::{Failure, Result};
use crate::home::{Home, KeptToken};

/// Where a server is looked for when nobody said where.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The options of this invocation, and what was remembered.
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) json: bool,
    server: Option<String>,
}

/// Somebody who is signed in.
pub(crate) struct Me {
    pub(crate) client: Client,
    pub(crate) key: AccountKey,
    pub(crate) id: UserId,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self> {
        Ok(Self { home: Home::find(global.home)?, json: global.json, server: global.server })
    }

    /// The server's address: as given, else of the last login, else on this machine.
    pub(crate) fn server(&self) -> Result<String> {
        Ok(match &self.server {
            Some(server) => server.clone(),
            None => self.home.settings()?.server.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        })
    }

    /// The same, for a server that was just found.
    #[cfg(feature = "up")]
    pub(crate) fn at(&self, server: &str) -> Self {
        Self { home: self.home.clone(), json: self.json, server: Some(server.to_owned()) }
    }

    /// Whoever has the account key of this machine, which is made if there is none.
    #[cfg(feature = "up")]
    pub(crate) async fn sign_in_or_begin(&self) -> Result<Me> {
        let key = self.home.key()?;
        let is_new = key.is_none();
        if is_new {
            self.home.can_keep()?;
        }
        let me = self.sign_in(key.unwrap_or_else(AccountKey::generate)).await?;
        if is_new {
            self.home.keep_key(&me.key)?;
        }
        me.client.publish_content_key(&me.key).await?;
        Ok(me)
    }

    /// Whoever has the account key of this machine, signed in.
    pub(crate) async fn me(&self) -> Result<Me> {
        let key = self.home.key()?.ok_or_else(|| {
            Failure::said("You are not signed in, and there is no account key yet. Run `ensemble login`.")
        })?;
        self.sign_in(key).await
    }

    /// Signs in with `key`, or takes the token that is still good from last time.
    pub(crate) async fn sign_in(&self, key: AccountKey) -> Result<Me> {
        let client = builder(self.server()?).credential(Credential::Account(key.clone())).build()?;
        let kept =
            self.home.token().filter(|kept| kept.origin == client.origin() && kept.public_key == key.public_key());
        let client = match &kept {
            Some(kept) => with(&client, kept),
            None => client,
        };
        let token = client.sign_in().await?;
        if kept.is_none_or(|kept| kept.token != token.token.expose_secret()) {
            self.home.keep_token(&KeptToken {
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
    pub(crate) fn kept(&self) -> Result<Option<Client>> {
        let client = builder(self.server()?).build()?;
        Ok(self.home.token().filter(|kept| kept.origin == client.origin()).map(|kept| with(&client, &kept)))
    }

    /// The machine to use when none is named: this one, or the only one there is.
    pub(crate) async fn usual_machine(&self, me: &Me) -> Result<MachineId> {
        if let Some(machine) = self.home.settings()?.machines.remove(me.client.origin()) {
            return Ok(machine);
        }
        let machines: Vec<_> = me.client.machines().try_collect().await?;
        match machines.as_slice() {
            [only] => Ok(only.id.clone()),
            [] => Err(Failure::said("You have no machine yet. Register this one with `ensemble machine register`.")),
            _ => Err(Failure::said(
                "You have several machines. Name one with --machine; `ensemble machine list` shows them.",
            )),
        }
    }
}

fn with(client: &Client, kept: &KeptToken) -> Client {
    let left = kept.expires_at.since(now());
    client.with_token(Token::stored(kept.token.clone().into(), kept.user_id, kept.expires_at, left))
}

/// Somebody waits at the keyboard: a server that is not there is said to be so after a second or two.
fn builder(server: String) -> ensemble_client::ClientBuilder {
    let retry = Retry { attempts: 5, ..Retry::default() };
    Client::builder(server).retry(retry).user_agent(concat!("ensemble/", env!("CARGO_PKG_VERSION")))
}

/// Ctrl-C, from now on. Kept by whoever waits for it: one that comes while nobody looks is not lost.
pub(crate) fn interrupts() -> Result<Signal> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::said(format!("Cannot listen for Ctrl-C: {error}.")))
}

/// This machine's idea of the time. Decides only whether a kept token is worth trying.
#[expect(clippy::disallowed_methods, reason = "a command line has no clock but the system's")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_micros(0).plus(since)
}
