//! Which web pages may call the interface from a browser (the CORS protocol of the Fetch standard).
//!
//! The edge alone answers for this: services never see a preflight, and what they might say is stripped.

use reqwest::Url;

/// What pages may send.
pub const ALLOWED_HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, X-View-Token, X-Voice-Key, X-Request-Id, \
    Last-Event-ID, Range, If-None-Match, Traceparent, Tracestate";
/// What pages may call.
pub const ALLOWED_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE";
/// The headers that pages may read.
pub const EXPOSED_HEADERS: &str = "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, Content-Range, X-Context-Version, \
    WWW-Authenticate, Location, ETag, Ignored-Members";
/// Seconds for which a browser may keep the answer to a preflight.
pub const MAX_AGE: &str = "600";

/// Pages on the reader's own computer, as `ensemble web` serves them: the only entries that stand for any port.
pub const LOOPBACK: &str = "http://127.0.0.1:*,http://localhost:*";

/// The origins that may call. The entry `none` is no origin: alone, it lets no page call.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<String>);

/// An origin must be a scheme, a host and perhaps a port, and nothing else; `null` and wildcards are none.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an origin such as https://app.example.com")]
pub struct NotAnOrigin(String);

impl Origins {
    /// Fails with the first text that is not an origin.
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAnOrigin> {
        origins.into_iter().filter(|text| *text != "none").map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// The value to answer with, when this `Origin` may call.
    pub fn allow<'a>(&self, origin: &'a str) -> Option<&'a str> {
        self.0.iter().any(|allowed| matches(allowed, origin)).then_some(origin)
    }
}

fn matches(allowed: &str, origin: &str) -> bool {
    let Some(host) = allowed.strip_suffix(":*") else { return allowed == origin };
    let port = origin.strip_prefix(host);
    // In the form that browsers send, nothing but a port can follow the colon.
    port.is_some_and(|port| port.is_empty() || port.starts_with(':')) && origin_of(origin).as_deref() == Some(origin)
}

fn parse(text: &str) -> Result<String, NotAnOrigin> {
    let text = text.to_ascii_lowercase();
    // A browser sends an origin in this form; a path, a user or a usual port makes another text.
    let is_origin = LOOPBACK.split(',').any(|loopback| loopback == text) || origin_of(&text).as_ref() == Some(&text);
    if is_origin { Ok(text) } else { Err(NotAnOrigin(text)) }
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
        for text in [
            "*",
            "null",
            "https://a/",
            "https://a/x",
            "app.example.com",
            "https://",
            "ftp://a",
            "https://u@a",
            "https://a:*",
            "https://localhost:*",
            "http://*:*",
        ] {
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
    fn loopback_may_call_from_any_port_and_nothing_that_looks_like_it() {
        let origins = Origins::new(LOOPBACK.split(',')).expect("origins");
        for origin in ["http://127.0.0.1", "http://127.0.0.1:7417", "http://localhost", "http://localhost:65535"] {
            assert_eq!(origins.allow(origin), Some(origin));
        }
        for other in [
            "http://127.0.0.1.evil.example",
            "http://127.0.0.1:80.evil.example",
            "http://127.0.0.1:1@evil.example",
            "http://127.0.0.11",
            "http://127.0.0.1:",
            "http://127.0.0.1:*",
            "http://127.0.0.1:+1",
            "http://127.0.0.1:65536",
            "http://127.0.0.1:1/",
            "http://localhost.evil",
            "http://localhost.evil:80",
            "http://evil.localhost",
            "http://[::1]:7417",
            "https://127.0.0.1",
            "https://localhost:7417",
            "null",
            "",
        ] {
            assert_eq!(origins.allow(other), None, "{other}");
        }
    }

    #[test]
    fn without_origins_no_page_may_call() {
        for origins in [&[][..], &["none"]] {
            let none = Origins::new(origins.iter().copied()).expect("no origins");
            assert!(none.allow("https://app.example.com").is_none() && none.allow("http://localhost").is_none());
        }
        let one = Origins::new(["https://App.Example.com"]).expect("an origin");
        assert_eq!(one.allow("https://app.example.com"), Some("https://app.example.com"));
    }
}
