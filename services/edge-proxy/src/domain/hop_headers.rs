//! Which header fields travel through the edge.
//!
//! Hop-by-hop fields end here (RFC 9110, section 7.6.1), and so does everything by which a client could speak in the
//! edge's name or make a service read another path, method or address than the edge did.

use actix_http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};

/// The fields a `Connection` field names, which end here too. Nearly always empty.
#[derive(Debug, Default)]
pub struct Named(Vec<String>);

impl Named {
    pub fn of(headers: &HeaderMap) -> Self {
        let mut named = Self::default();
        for value in headers.get_all(CONNECTION) {
            named.add(value);
        }
        named
    }

    /// Reads one `Connection` field.
    pub fn add(&mut self, value: &HeaderValue) {
        let options = value.to_str().unwrap_or_default().split(',').map(str::trim);
        let names = options.filter(|option| {
            !option.is_empty() && !option.eq_ignore_ascii_case("keep-alive") && !option.eq_ignore_ascii_case("close")
        });
        self.0.extend(names.map(str::to_ascii_lowercase));
    }

    /// Removes the fields that were named.
    pub fn retain_others(&self, headers: &mut HeaderMap) {
        for name in &self.0 {
            headers.remove(name.as_str());
        }
    }

    fn contains(&self, name: &str) -> bool {
        !self.0.is_empty() && self.0.iter().any(|named| named == name)
    }
}

/// May this field of a request go on to a service? Host, lengths and the forwarding fields are written anew.
pub fn goes_up(name: &HeaderName, named: &Named) -> bool {
    let name = name.as_str();
    !is_hop_by_hop(name) && !is_ours(name) && !named.contains(name)
}

/// May this field of an answer go on to the client? What the edge answers for (CORS, request ids, lengths) does not.
pub fn comes_down(name: &str) -> bool {
    !is_hop_by_hop(name)
        && !name.starts_with("access-control-")
        && !name.starts_with("x-internal-")
        && !matches!(
            name,
            "content-length" | "x-request-id" | "server" | "x-powered-by" | "ratelimit" | "ratelimit-policy"
        )
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

fn is_ours(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'x') => {
            const PREFIXES: [&str; 8] = [
                "x-forwarded-",
                "x-internal-",
                "x-user-",
                "x-original-",
                "x-rewrite-",
                "x-http-method",
                "x-accel-",
                "x-envoy-",
            ];
            PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || matches!(
                    name,
                    "x-real-ip" | "x-request-id" | "x-client-ip" | "x-cluster-client-ip" | "x-method-override"
                )
                || has_underscore(name)
        }
        Some(b'c') => matches!(name, "content-length" | "cf-connecting-ip") || has_underscore(name),
        _ => {
            matches!(name, "host" | "forwarded" | "expect" | "via" | "true-client-ip" | "fastly-client-ip")
                || has_underscore(name)
        }
    }
}

/// Some servers read `x_user_id` as `X-User-Id`.
fn has_underscore(name: &str) -> bool {
    memchr::memchr(b'_', name.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(name: &str) -> bool {
        goes_up(&HeaderName::from_bytes(name.as_bytes()).expect("a name"), &Named::default())
    }

    #[test]
    fn what_is_the_clients_own_goes_up() {
        for name in [
            "authorization",
            "content-type",
            "accept",
            "idempotency-key",
            "x-view-token",
            "x-voice-key",
            "last-event-id",
            "traceparent",
            "range",
            "user-agent",
            "origin",
            "if-none-match",
            "cookie",
        ] {
            assert!(up(name), "{name}");
        }
    }

    #[test]
    fn what_ends_here_does_not_go_up() {
        for name in [
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Upgrade",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Content-Length",
            "Host",
            "Expect",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Anything",
            "X-Real-IP",
            "X-User-Id",
            "X-Internal-Account",
            "X-Request-Id",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-HTTP-Method-Override",
            "x_user_id",
            "content_type",
            "a_b",
            "Via",
            "HTTP2-Settings",
        ] {
            assert!(!up(name), "{name}");
        }
    }

    #[test]
    fn fields_named_by_connection_end_here() {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, X-Secret ,close"));
        let named = Named::of(&headers);
        assert!(!goes_up(&HeaderName::from_static("x-secret"), &named));
        assert!(goes_up(&HeaderName::from_static("x-other"), &named));
        headers.insert(HeaderName::from_static("x-secret"), HeaderValue::from_static("y"));
        named.retain_others(&mut headers);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn answers_lose_what_the_edge_answers_for() {
        for name in [
            "access-control-allow-origin",
            "transfer-encoding",
            "server",
            "x-request-id",
            "x-internal-note",
            "connection",
        ] {
            assert!(!comes_down(name), "{name}");
        }
        for name in ["content-type", "retry-after", "allow", "www-authenticate", "etag", "cache-control", "date"] {
            assert!(comes_down(name), "{name}");
        }
    }
}
