//! A client that can send any request, also a malformed one, and returns the exact response.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::SOON;
use crate::document::Asked;

/// A caller of a service. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    bearer: Option<String>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Api {
    /// A caller without credentials.
    pub fn new(base: &str) -> Self {
        ensemble_chassis::process::install_providers();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Long-polls wait for a minute themselves.
            .timeout(2 * SOON)
            .build()
            .unwrap_or_else(|error| panic!("no HTTP client: {error}"));
        Self { http, base: base.trim_end_matches('/').to_owned(), bearer: None }
    }

    /// The same caller with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { bearer: Some(token.to_owned()), ..self.clone() }
    }

    /// The same caller at another replica.
    #[must_use]
    pub fn at(&self, base: &str) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), ..self.clone() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A request that the caller completes and sends with [`Api::send`].
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_else(|error| panic!("{method}: {error}"));
        let request = self.http.request(method, self.url(path));
        match &self.bearer {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends the request. Panics when no response arrives.
    pub async fn send(request: RequestBuilder) -> Answer {
        Self::try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// Sends the request. An error when no complete response arrives.
    pub async fn try_send(request: RequestBuilder) -> reqwest::Result<Answer> {
        let (http, request) = request.build_split();
        let request = request?;
        let asked = Asked::new(&request);
        let response = http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let answer = Answer { status, headers, text: response.text().await? };
        asked.check(answer.status, &answer.headers, &answer.text);
        Ok(answer)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Self::send(self.request("GET", path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Self::send(self.request("DELETE", path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        Self::send(self.request("POST", path).json(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        Self::send(self.request("PATCH", path).json(body)).await
    }

    /// A POST with an `Idempotency-Key`.
    pub async fn post_keyed(&self, path: &str, key: &str, body: &Value) -> Answer {
        Self::send(self.request("POST", path).header("Idempotency-Key", key).json(body)).await
    }

    /// A POST with this exact body and the content type of JSON.
    pub async fn post_text(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let json = (HeaderName::from_static("content-type"), HeaderValue::from_static("application/json"));
        Self::send(self.request("POST", path).header(json.0, json.1).body(body)).await
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    pub fn read<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not what was expected ({error}): {self:?}"))
    }

    /// The body of a response. Panics unless it has this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// The body of a problem. Checks the status, the code, the media type and the status inside the body.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        assert_eq!(body.get("code"), Some(&Value::from(code)), "{}", self.text);
        assert_eq!(body.get("status"), Some(&Value::from(status)), "{}", self.text);
        let said = ["type", "title", "requestId"].iter().all(|name| body.get(name).is_some_and(Value::is_string));
        assert!(said, "{}", self.text);
        body
    }

    /// The pointers of a 400 INVALID_ARGUMENT.
    #[track_caller]
    pub fn bad_fields(&self) -> Vec<String> {
        let body = self.problem(400, "INVALID_ARGUMENT");
        let errors = body.get("errors").and_then(Value::as_array).cloned().unwrap_or_default();
        errors.iter().filter_map(|error| error.get("pointer")?.as_str().map(str::to_owned)).collect()
    }
}
