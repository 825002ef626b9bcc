//! A client of one server with one identity: address, connections, credential and timeouts.

use std::sync::{Arc, Once};
use std::time::Duration;

use ensemble_types::time::Timestamp;
use reqwest::{Method, Url};
use secrecy::SecretString;
use tokio::sync::Mutex;

use crate::call::Call;
use crate::clock::Clock;
use crate::credential::{Credential, Token};
use crate::error::{Error, Result};
use crate::follow::{Streams, Way};
use crate::poll::Polls;
use crate::quota::Quota;
use crate::retry::{Repeat, Retry};

/// A client of one server with one identity. Cheap to clone; clones share the connections and the token.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    /// Scheme, host and port as dialled. A sign-in is bound to this origin.
    pub(crate) origin: String,
    pub(crate) credential: Credential,
    pub(crate) voice_key: Option<SecretString>,
    pub(crate) token: std::sync::Mutex<Option<Token>>,
    /// One sign-in at a time.
    pub(crate) signing_in: Mutex<()>,
    pub(crate) retry: Retry,
    pub(crate) answer_within: Duration,
    pub(crate) clock: Arc<Clock>,
    pub(crate) quota: Quota,
    pub(crate) streams: Arc<Streams>,
    pub(crate) polls: Polls,
}

/// Builds a [`Client`].
pub struct ClientBuilder {
    base: String,
    credential: Credential,
    voice_key: Option<SecretString>,
    retry: Retry,
    answer_within: Duration,
    clock: Arc<Clock>,
    user_agent: String,
    polls: Polls,
}

impl ClientBuilder {
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// The application's key for the voice gateway.
    pub fn voice_key(mut self, key: SecretString) -> Self {
        self.voice_key = Some(key);
        self
    }

    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The timeout of one attempt (default 10 s). A long-poll adds the time that it asks the service to wait.
    pub fn answer_within(mut self, timeout: Duration) -> Self {
        self.answer_within = timeout;
        self
    }

    /// What measures the server's clock (default: one of its own). Several clients of one server can share it.
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// How often is read what streams bring, where the address holds them back.
    pub fn polls(mut self, polls: Polls) -> Self {
        self.polls = polls;
        self
    }

    pub fn build(self) -> Result<Client> {
        install_tls();
        let base = parse_base(&self.base)?;
        let mut http = reqwest::Client::builder()
            .user_agent(self.user_agent)
            .connect_timeout(Duration::from_secs(5))
            // A redirect must not send the bearer token to another server.
            .redirect(reqwest::redirect::Policy::none());
        if base.scheme() == "http" {
            // Without TLS the system's certificates are not needed; small images have none.
            http = http.tls_certs_only([]);
        }
        if is_loopback(&base) {
            http = http.no_proxy();
        }
        Ok(Client(Arc::new(Inner {
            http: http.build().map_err(Error::Setup)?,
            origin: base.origin().ascii_serialization(),
            base,
            credential: self.credential,
            voice_key: self.voice_key,
            token: std::sync::Mutex::new(None),
            signing_in: Mutex::new(()),
            retry: self.retry,
            answer_within: self.answer_within,
            clock: self.clock,
            quota: Quota::default(),
            streams: Arc::default(),
            polls: self.polls,
        })))
    }
}

impl Client {
    /// `base` is the server's address, for example `http://127.0.0.1:8080`. A path prefix is kept.
    pub fn builder(base: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            base: base.into(),
            credential: Credential::Anonymous,
            voice_key: None,
            retry: Retry::default(),
            answer_within: Duration::from_secs(10),
            clock: Arc::default(),
            user_agent: concat!("ensemble-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            polls: Polls::default(),
        }
    }

    /// The time by the server's clock, as [`Clock::now`] has it.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The same server and connections with another credential.
    pub fn with_credential(&self, credential: Credential) -> Self {
        self.varied(credential, None, self.0.voice_key.clone())
    }

    /// The same credential with a token from an earlier process, so that no sign-in is needed.
    pub fn with_token(&self, token: Token) -> Self {
        self.varied(self.0.credential.clone(), Some(token), self.0.voice_key.clone())
    }

    /// The same server, connections and credential, with a key for the voice gateway.
    pub fn with_voice_key(&self, key: SecretString) -> Self {
        self.varied(self.0.credential.clone(), None, Some(key))
    }

    fn varied(&self, credential: Credential, token: Option<Token>, voice_key: Option<SecretString>) -> Self {
        let this = &self.0;
        Self(Arc::new(Inner {
            http: this.http.clone(),
            base: this.base.clone(),
            origin: this.origin.clone(),
            credential,
            voice_key,
            token: std::sync::Mutex::new(token),
            signing_in: Mutex::new(()),
            retry: this.retry,
            answer_within: this.answer_within,
            clock: this.clock.clone(),
            quota: Quota::default(),
            streams: this.streams.clone(),
            polls: this.polls,
        }))
    }

    /// Waits until a quarter of the requests that the account may send in a minute is left, as the newest answer has it. Long work calls
    /// this between its steps, so that the account's other programs are not refused because of it.
    pub async fn leave_room(&self) {
        let wait = self.0.quota.wait();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether the address holds streams back, so that what they bring is polled and live text does not come.
    pub fn is_held_back(&self) -> bool {
        self.0.streams.way() == Way::Poll
    }

    /// The server's clock, as this client has measured it.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Scheme, host and port of the server.
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    pub fn base(&self) -> &Url {
        &self.0.base
    }

    /// Whether the address is one of loopback.
    pub fn is_on_loopback(&self) -> bool {
        is_loopback(&self.0.base)
    }

    pub(crate) fn get(&self, path: &[&str]) -> Call<'_> {
        Call::new(self, Method::GET, path, Repeat::Harmless)
    }

    pub(crate) fn post(&self, path: &[&str], repeat: Repeat) -> Call<'_> {
        Call::new(self, Method::POST, path, repeat)
    }

    pub(crate) fn patch(&self, path: &[&str], repeat: Repeat) -> Call<'_> {
        Call::new(self, Method::PATCH, path, repeat)
    }

    /// Deletes a resource. Treats 404 as success if an earlier attempt may have deleted it.
    pub(crate) async fn delete(&self, path: &[&str]) -> Result<()> {
        Call::new(self, Method::DELETE, path, Repeat::Harmless).gone_is_done().send_whole().await.map(drop)
    }
}

fn parse_base(text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|_| Error::Address(text.to_owned()))?;
    if matches!(url.scheme(), "http" | "https") && url.host().is_some() {
        Ok(url)
    } else {
        Err(Error::Address(text.to_owned()))
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Installs the TLS provider of the process. A provider that the program installed before is kept.
pub(crate) fn install_tls() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let installed_before = rustls::crypto::ring::default_provider().install_default().is_err();
        tracing::trace!(installed_before, "TLS provider ready");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_http_and_keep_their_prefix() {
        for bad in ["", "localhost:8080", "ftp://x", "http://"] {
            assert!(matches!(Client::builder(bad).build(), Err(Error::Address(_))), "{bad}");
        }
        // A loopback address, because other addresses need the system's certificates.
        let client = Client::builder("http://127.0.0.1:80/ensemble/").retry(Retry::never()).build().unwrap();
        assert_eq!(client.origin(), "http://127.0.0.1");
        let call = client.get(&["v1", "machines", "a/b"]);
        assert_eq!(call.url().as_str(), "http://127.0.0.1/ensemble/v1/machines/a%2Fb");
    }
}
