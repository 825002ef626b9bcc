//! One call from its address to its response: credentials, retries, deadlines, problems. It knows no endpoint.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use ensemble_types::problem::{PROBLEM_JSON, Problem};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempts::{Attempt, Attempts};
use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;

/// A request under construction.
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
    head_within: Option<Duration>,
    longest_answer: usize,
}

/// A complete response with a success status.
#[derive(Default)]
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
            head_within: None,
            longest_answer: LONGEST_PAGE,
        }
    }

    #[cfg(test)]
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Treats 404 as success if an earlier attempt may have deleted the resource.
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

    /// Adds a header. A value that is not valid in a header makes the call fail with an argument error when it is sent.
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

    /// Sets the idempotency key, so that the service recognises a repetition.
    pub(crate) fn idempotent(self, key: &str) -> Self {
        self.header(HeaderName::from_static("idempotency-key"), Some(key))
    }

    /// Adds the application's voice key to the user's own credential.
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

    /// Extends the timeouts by the time for which the service was asked to hold the request open.
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Fails when an attempt has no head by then, and does not try again. For [`Self::send_open`].
    pub(crate) fn head_within(mut self, limit: Duration) -> Self {
        self.head_within = Some(limit);
        self
    }

    /// Refuses an answer of more than this many bytes. The limit protects against a server that is not ours.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.longest_answer = bytes;
        self
    }

    /// Sends the request and parses the JSON of the response.
    pub(crate) async fn send<T: DeserializeOwned>(self) -> Result<T> {
        let call = format!("{} {}", self.method, redacted(&self.url));
        let answer = self.send_whole().await?;
        serde_json::from_slice(&answer.body).map_err(|source| Error::InvalidResponse { call, source })
    }

    /// As [`Self::send`], and also returns whether the status was 201 Created.
    pub(crate) async fn send_created<T: DeserializeOwned>(self) -> Result<(T, bool)> {
        let call = format!("{} {}", self.method, redacted(&self.url));
        let answer = self.send_whole().await?;
        let value = serde_json::from_slice(&answer.body).map_err(|source| Error::InvalidResponse { call, source })?;
        Ok((value, answer.status == StatusCode::CREATED))
    }

    /// Sends the request and reads the complete response.
    pub(crate) async fn send_whole(mut self) -> Result<Answer> {
        let body = self.take_body()?;
        let mut attempts = self.attempts();
        loop {
            let attempt = attempts.begin().await?;
            let exchange =
                async { read(self.origin(), self.send_once(&body, &attempt).await?, self.longest_answer).await };
            let error = match self.within(attempt.timeout, exchange).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if self.gone_is_done && attempts.may_have_happened() && error.is_not_found() {
                return Ok(Answer::default());
            }
            attempts.failed(error, attempt).await?;
        }
    }

    /// Sends the request and returns as soon as the head of the response is there. The caller reads the body.
    pub(crate) async fn send_open(mut self) -> Result<Response> {
        let body = self.take_body()?;
        let mut attempts = self.attempts();
        loop {
            let attempt = attempts.begin().await?;
            let exchange = async {
                let response = self.send_once(&body, &attempt).await?;
                if response.status().is_success() { Ok(response) } else { Err(refusal(self.origin(), response).await) }
            };
            let limit = self.head_within.map_or(attempt.timeout, |limit| limit.min(attempt.timeout));
            match self.within(limit, exchange).await {
                Ok(response) => return Ok(response),
                Err(error @ Error::TimedOut { .. }) if self.head_within.is_some() => return Err(error),
                Err(error) => attempts.failed(error, attempt).await?,
            }
        }
    }

    fn take_body(&mut self) -> Result<Option<Bytes>> {
        std::mem::replace(&mut self.body, Ok(None))
    }

    fn attempts(&self) -> Attempts<'c> {
        Attempts::new(self.client, self.repeat, self.signed, self.wait)
    }

    fn origin(&self) -> &'c str {
        &self.client.0.origin
    }

    async fn send_once(&self, body: &Option<Bytes>, attempt: &Attempt) -> Result<Response> {
        let mut request =
            self.client.0.http.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some(bearer) = &attempt.bearer {
            request = request.bearer_auth(bearer.expose_secret());
        }
        if let Some(body) = body {
            request = request.body(body.clone());
        }
        let response = request.send().await.map_err(|error| Error::of(self.origin(), error))?;
        self.client.0.clock.measure(response.headers());
        self.client.0.quota.measure(response.headers());
        Ok(response)
    }

    async fn within<T>(&self, timeout: Duration, exchange: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut { origin: self.origin().to_owned(), waited: timeout }),
        }
    }
}

/// Reads the complete response; an error status becomes an error.
async fn read(origin: &str, response: Response, longest: usize) -> Result<Answer> {
    if !response.status().is_success() {
        return Err(refusal(origin, response).await);
    }
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Answer { status, headers, body: bounded(origin, response, longest).await? })
}

/// The error of a response with an error status.
async fn refusal(origin: &str, response: Response) -> Error {
    let (status, headers) = (response.status(), response.headers().clone());
    match bounded(origin, response, LONGEST_PROBLEM).await {
        Ok(body) => problem(origin, status, &headers, &body),
        Err(error) => error,
    }
}

/// An answer without lists of texts: a confirmation, a token, a machine.
pub(crate) const LONGEST_RECORD: usize = 4 << 20;
/// A page of a list, and what else has no limit of its own.
const LONGEST_PAGE: usize = 64 << 20;
/// A run of 10,000 tasks with all their texts.
pub(crate) const LONGEST_RUN: usize = 512 << 20;
/// An error with a text for each wrong field.
const LONGEST_PROBLEM: usize = 4 << 20;

/// Reads a complete body.
async fn bounded(origin: &str, mut response: reqwest::Response, longest: usize) -> Result<Bytes> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| Error::of(origin, error))? {
        if body.len() + piece.len() > longest {
            return Err(Error::ForeignServer { origin: origin.to_owned(), status: response.status().as_u16() });
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

/// The problem of an error response. A response without a problem body did not come from the service.
fn problem(origin: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_problem = text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with(PROBLEM_JSON));
    let parsed = is_problem.then(|| serde_json::from_slice::<Problem>(body).ok()).flatten();
    match parsed {
        Some(problem) if problem.is_no_such_path() => Error::OlderServer { origin: origin.to_owned() },
        Some(mut problem) => {
            problem.retry_after = text(header::RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
            problem.into()
        }
        None => Error::ForeignServer { origin: origin.to_owned(), status: status.as_u16() },
    }
}

/// The path for messages, without the token of a public link.
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
