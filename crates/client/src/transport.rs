//! One call from its address to its answer: credentials, tries, deadlines, problems. Knows no endpoint.

use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use ensemble_types::problem::{Code, PROBLEM_JSON, Problem};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credential::{Credential, Token};
use crate::error::{Error, Result};
use crate::retry::{self, Repeat, Retry};

/// A client of one server, as one caller. Cheap to clone; clones share connections and the token.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    /// Scheme, host and port as they were dialled; what a sign-in is bound to.
    pub(crate) origin: String,
    pub(crate) credential: Credential,
    pub(crate) voice_key: Option<SecretString>,
    pub(crate) token: Mutex<Option<Token>>,
    pub(crate) retry: Retry,
    pub(crate) answer_within: Duration,
}

/// How a [`Client`] is made.
pub struct ClientBuilder {
    base: String,
    credential: Credential,
    voice_key: Option<SecretString>,
    token: Option<Token>,
    retry: Retry,
    answer_within: Duration,
    user_agent: String,
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

    /// A token from an earlier process, so that this one need not sign in first.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long one try may wait for its answer (default 10 s). Long-polls add what they ask the service to wait.
    pub fn answer_within(mut self, patience: Duration) -> Self {
        self.answer_within = patience;
        self
    }

    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    pub fn build(self) -> Result<Client> {
        install_tls();
        let base = parse_base(&self.base)?;
        let mut http = reqwest::Client::builder()
            .user_agent(self.user_agent)
            .connect_timeout(Duration::from_secs(5))
            // A bearer must not follow a redirect to somewhere else.
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
            token: Mutex::new(self.token),
            retry: self.retry,
            answer_within: self.answer_within,
        })))
    }
}

impl Client {
    /// `base` is the server's address, such as `http://127.0.0.1:8080`; a path prefix is kept.
    pub fn builder(base: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            base: base.into(),
            credential: Credential::Anonymous,
            voice_key: None,
            token: None,
            retry: Retry::default(),
            answer_within: Duration::from_secs(10),
            user_agent: concat!("ensemble-client/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The same server and connections, as somebody else.
    pub fn with_credential(&self, credential: Credential) -> Self {
        let this = &self.0;
        Self(Arc::new(Inner {
            http: this.http.clone(),
            base: this.base.clone(),
            origin: this.origin.clone(),
            credential,
            voice_key: this.voice_key.clone(),
            token: Mutex::new(None),
            retry: this.retry,
            answer_within: this.answer_within,
        }))
    }

    /// Scheme, host and port of the server.
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    pub fn base(&self) -> &Url {
        &self.0.base
    }

    pub(crate) fn get(&self, path: &[&str]) -> Call<'_> {
        self.call(Method::GET, path, Repeat::Harmless)
    }

    pub(crate) fn post(&self, path: &[&str], repeat: Repeat) -> Call<'_> {
        self.call(Method::POST, path, repeat)
    }

    pub(crate) fn patch(&self, path: &[&str], repeat: Repeat) -> Call<'_> {
        self.call(Method::PATCH, path, repeat)
    }

    /// Deletes, and takes "it is not there" for done when an earlier try may have done it.
    pub(crate) async fn delete(&self, path: &[&str]) -> Result<()> {
        let mut call = self.call(Method::DELETE, path, Repeat::Harmless);
        call.gone_is_done = true;
        call.answer().await.map(drop)
    }

    fn call(&self, method: Method, path: &[&str], repeat: Repeat) -> Call<'_> {
        let mut url = self.0.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Call {
            client: self,
            method,
            url,
            headers: HeaderMap::new(),
            body: Ok(None),
            repeat,
            signed: true,
            gone_is_done: false,
            wait: Duration::ZERO,
        }
    }
}

/// A request that is being put together.
pub(crate) struct Call<'c> {
    client: &'c Client,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Result<Option<Bytes>>,
    repeat: Repeat,
    signed: bool,
    gone_is_done: bool,
    wait: Duration,
}

enum Got {
    Whole { status: StatusCode, headers: HeaderMap, body: Bytes },
    Open(Response),
}

/// A whole answer with a good status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call<'_> {
    pub(crate) fn query(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        if let Some(value) = value {
            self.url.query_pairs_mut().append_pair(name, &value.to_string());
        }
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body)
            .map(|bytes| Some(bytes.into()))
            .map_err(|error| Error::Argument(format!("the request cannot be written as JSON: {error}")));
        self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }

    /// Adds a header. A value that no header can carry is an argument error when the call is sent.
    pub(crate) fn header(mut self, name: HeaderName, value: Option<&str>) -> Self {
        let Some(value) = value else { return self };
        match HeaderValue::from_str(value) {
            Ok(value) => {
                self.headers.insert(name, value);
            }
            Err(_) => self.body = Err(Error::Argument(format!("the value for {name} has characters that a header cannot carry"))),
        }
        self
    }

    /// Names the request, so that a second arrival of it is known.
    pub(crate) fn idempotent(self, key: &str) -> Self {
        self.header(HeaderName::from_static("idempotency-key"), Some(key))
    }

    /// Adds the application's voice key, beside the user's own credential.
    pub(crate) fn voice(mut self) -> Self {
        match self.client.0.voice_key.as_ref().map(|key| HeaderValue::from_str(key.expose_secret())) {
            Some(Ok(mut value)) => {
                value.set_sensitive(true);
                self.headers.insert(HeaderName::from_static("x-voice-key"), value);
            }
            Some(Err(_)) => self.body = Err(Error::Argument("the voice key has characters that a header cannot carry".to_owned())),
            None => self.body = Err(Error::NoCredential("a voice key")),
        }
        self
    }

    /// Sends no credential, even when the client has one.
    pub(crate) fn anonymous(mut self) -> Self {
        self.signed = false;
        self
    }

    /// The service was asked to hold the answer back for so long.
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sends it and reads the JSON of the answer.
    pub(crate) async fn send<T: DeserializeOwned>(self) -> Result<T> {
        let call = format!("{} {}", self.method, redacted(&self.url));
        let answer = self.answer().await?;
        serde_json::from_slice(&answer.body).map_err(|source| Error::Unreadable { call, source })
    }

    /// As [`Self::send`], and whether the answer was 201: made now, and not there before.
    pub(crate) async fn send_created<T: DeserializeOwned>(self) -> Result<(T, bool)> {
        let call = format!("{} {}", self.method, redacted(&self.url));
        let answer = self.answer().await?;
        let value = serde_json::from_slice(&answer.body).map_err(|source| Error::Unreadable { call, source })?;
        Ok((value, answer.status == StatusCode::CREATED))
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn answer(self) -> Result<Answer> {
        match self.run(true).await? {
            Got::Whole { status, headers, body } => Ok(Answer { status, headers, body }),
            Got::Open(_) => Err(Error::Argument("an open answer where a whole one was asked for".to_owned())),
        }
    }

    /// Sends it and returns as soon as the answer's head is there; reading the body is the caller's.
    pub(crate) async fn open(self) -> Result<Response> {
        match self.run(false).await? {
            Got::Open(response) => Ok(response),
            Got::Whole { .. } => Err(Error::Argument("a whole answer where an open one was asked for".to_owned())),
        }
    }

    async fn run(mut self, whole: bool) -> Result<Got> {
        let body = std::mem::replace(&mut self.body, Ok(None))?;
        let deadline = Instant::now() + self.client.0.retry.deadline + self.wait;
        let mut failures = 0;
        let mut renewed = false;
        let mut may_have_happened = false;
        loop {
            let bearer = if self.signed { self.client.bearer().await? } else { None };
            let patience = (self.client.0.answer_within + self.wait)
                .min(deadline.saturating_duration_since(Instant::now()));
            let error = match self.once(body.clone(), bearer.as_ref(), whole, patience).await {
                Ok(got) => return Ok(got),
                Err(error) => error,
            };
            if error.is(Code::Unauthenticated) && !renewed && self.client.forget(bearer.as_ref()).await {
                renewed = true;
                continue;
            }
            if self.gone_is_done && may_have_happened && error.is_not_found() {
                return Ok(Got::Whole { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::new() });
            }
            failures += 1;
            may_have_happened |= retry::ambiguous(&error);
            let Some(wanted) = retry::again(&error, self.repeat).filter(|_| failures < self.client.0.retry.attempts) else {
                return Err(error);
            };
            let pause = self.client.0.retry.pause(failures, wanted);
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::debug!(failures, ?pause, "Trying a call again: {error}");
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, body: Option<Bytes>, bearer: Option<&SecretString>, whole: bool, patience: Duration) -> Result<Got> {
        let origin = &self.client.0.origin;
        let mut request = self.client.0.http.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some(bearer) = bearer {
            request = request.bearer_auth(bearer.expose_secret());
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let exchange = async {
            let response = request.send().await.map_err(|error| Error::of(origin, error))?;
            let status = response.status();
            if status.is_success() && !whole {
                return Ok(Got::Open(response));
            }
            let headers = response.headers().clone();
            let body = response.bytes().await.map_err(|error| Error::of(origin, error))?;
            if status.is_success() {
                Ok(Got::Whole { status, headers, body })
            } else {
                Err(problem(origin, status, &headers, &body))
            }
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::Silent { origin: origin.clone(), waited: patience }),
        }
    }
}

/// The problem of an error answer; what is not a problem body comes from something else than the service.
fn problem(origin: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_problem = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with(PROBLEM_JSON));
    let parsed = is_problem.then(|| serde_json::from_slice::<Problem>(body).ok()).flatten();
    match parsed {
        Some(mut problem) => {
            problem.retry_after = text(header::RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
            problem.into()
        }
        None => Error::Foreign { origin: origin.to_owned(), status: status.as_u16() },
    }
}

/// A path for messages, without the token of a public link.
fn redacted(url: &Url) -> String {
    match url.path().split_once("/public-sessions/") {
        Some((before, _)) => format!("{before}/public-sessions/…"),
        None => url.path().to_owned(),
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

/// The one TLS provider of the process; a program that installed it already keeps its own.
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
        let client = Client::builder("https://example.com:443/ensemble/").retry(Retry::never()).build();
        if let Ok(client) = client {
            assert_eq!(client.origin(), "https://example.com");
            let call = client.get(&["v1", "machines", "a/b"]);
            assert_eq!(call.url.as_str(), "https://example.com/ensemble/v1/machines/a%2Fb");
        }
    }

    #[test]
    fn the_token_of_a_link_is_not_in_messages() {
        let url = Url::parse("http://h/v1/public-sessions/SECRET/stream").unwrap();
        assert_eq!(redacted(&url), "/v1/public-sessions/…");
    }
}
