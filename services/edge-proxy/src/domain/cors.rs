//! Which web pages may call the interface from a browser (the CORS protocol of the Fetch standard).
//!
//! The edge alone answers for this: services never see a preflight, and what they might say is stripped.

use reqwest::Url;

/// What pages may send.
pub const ALLOWED_HEADERS: &str =
    "Authorization, Content-Type, Idempotency-Key, X-View-Token, X-Voice-Key, X-Request-Id, Last-Event-ID";
/// What pages may call.
pub const ALLOWED_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE";
/// What pages may read beside the body.
pub const EXPOSED_HEADERS: &str = "X-Request-Id, Retry-After, RateLimit";
/// Seconds for which a browser may keep the answer to a preflight.
pub const MAX_AGE: &str = "600";

/// The origins that may call.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<String>);

/// An origin must be a scheme, a host and perhaps a port, and nothing else; `null` and wildcards are none.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an origin such as https://app.example.com")]
pub struct NotAnOrigin(String);

impl Origins {
    /// Fails with the first text that is not an origin.
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAnOrigin> {
        origins.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value to answer with, when this `Origin` may call.
    pub fn allow(&self, origin: &str) -> Option<&str> {
        self.0.iter().find(|allowed| *allowed == origin).map(String::as_str)
    }
}

fn parse(text: &str) -> Result<String, NotAnOrigin> {
    let text = text.to_ascii_lowercase();
    // A browser sends an origin in this form; a path, a user or a usual port makes another text.
    origin_of(&text).filter(|origin| *origin == text).ok_or(NotAnOrigin(text))
}

/// The origin of an HTTP URL: its scheme, host and port.
pub fn origin_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_origins_are_allowed() {
        let origins = Origins::new(["https://app.example.com", "http://localhost:3000"]).expect("origins");
        let allow = |origin: &'static str| origins.allow(origin).is_some();
        assert!(allow("https://app.example.com"));
        assert!(allow("http://localhost:3000"));
        for other in [
            "https://app.example.com.evil.org",
            "http://app.example.com",
            "https://app.example.com:444",
            "null",
            "*",
            "",
        ] {
            assert!(!allow(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in ["*", "null", "https://a/", "https://a/x", "app.example.com", "https://", "ftp://a", "https://u@a"]
        {
            assert!(Origins::new([text]).is_err(), "{text}");
        }
    }

    #[test]
    fn a_url_has_an_origin() {
        assert_eq!(origin_of("https://a.example:8443/x?y#z").as_deref(), Some("https://a.example:8443"));
        assert_eq!(origin_of("https://a.example").as_deref(), Some("https://a.example"));
        assert_eq!(origin_of("nonsense"), None);
    }

    #[test]
    fn without_origins_no_page_may_call() {
        let none = Origins::new([]).expect("no origins");
        assert!(none.is_empty() && none.allow("https://app.example.com").is_none());
        let one = Origins::new(["https://App.Example.com"]).expect("an origin");
        assert!(!one.is_empty());
        assert_eq!(one.allow("https://app.example.com"), Some("https://app.example.com"));
    }
}
