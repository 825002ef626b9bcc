//! One call from its address to its answer: credentials, tries, deadlines, problems. Knows no endpoint.

use std::time::Duration;

use bytes::Bytes;
use ensemble_types::problem::{Code, PROBLEM_JSON, Problem};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::retry::{self, Repeat};
use crate::transport::Client;

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

impl<'c> Call<'c> {
    pub(crate) fn new(client: &'c Client, method: Method, path: &[&str], repeat: Repeat) -> Self {
        let mut url = client.base().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Self {
            client,
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

    #[cfg(test)]
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Takes "it is not there" for done, when an earlier try may have done it.
    pub(crate) fn gone_is_done(mut self) -> Self {
        self.gone_is_done = true;
        self
    }

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
            Err(_) => {
                self.body =
                    Err(Error::Argument(format!("the value for {name} has characters that a header cannot carry")))
            }
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
            Some(Err(_)) => {
                self.body = Err(Error::Argument("the voice key has characters that a header cannot carry".to_owned()))
            }
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
            let timeout =
                (self.client.0.answer_within + self.wait).min(deadline.saturating_duration_since(Instant::now()));
            let error = match self.once(body.clone(), bearer.as_ref(), whole, timeout).await {
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
            let Some(wanted) = retry::again(&error, self.repeat).filter(|_| failures < self.client.0.retry.attempts)
            else {
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

    async fn once(
        &self,
        body: Option<Bytes>,
        bearer: Option<&SecretString>,
        whole: bool,
        timeout: Duration,
    ) -> Result<Got> {
        let origin = &self.client.0.origin;
        let mut request =
            self.client.0.http.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
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
            let body = bounded(origin, response).await?;
            if status.is_success() {
                Ok(Got::Whole { status, headers, body })
            } else {
                Err(problem(origin, status, &headers, &body))
            }
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::Silent { origin: origin.clone(), waited: timeout }),
        }
    }
}

/// More than any answer of the service: a run of 10,000 tasks, each with all that it may say.
const LONGEST_ANSWER: usize = 512 * 1024 * 1024;

/// A whole body, of a server that may not be what it seems.
async fn bounded(origin: &str, mut response: reqwest::Response) -> Result<Bytes> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| Error::of(origin, error))? {
        if body.len() + piece.len() > LONGEST_ANSWER {
            return Err(Error::Foreign { origin: origin.to_owned(), status: response.status().as_u16() });
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_link_is_not_in_messages() {
        let url = Url::parse("http://h/v1/public-sessions/SECRET/stream").unwrap();
        assert_eq!(redacted(&url), "/v1/public-sessions/…");
    }
}
