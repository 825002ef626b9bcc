//! Which header fields travel through the edge.
//!
//! Hop-by-hop fields end here (RFC 9110, section 7.6.1), and so does everything by which a client could speak in the
//! edge's name or make a service read another path, method or address than the edge did.

/// The options in all `Connection` fields. Fields that they name end here, too.
pub fn connection_options<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    values.flat_map(|value| value.split(',')).map(str::trim).collect()
}

/// Whether this field of a request is forwarded to a service. The edge writes host, lengths and the forwarding fields itself.
pub fn forward_to_upstream(name: &str, options: &[&str]) -> bool {
    !is_hop_by_hop(name, options) && !is_reserved(name)
}

/// May this field of an answer go on to the client? What the edge answers for (CORS, request ids, lengths) does not.
pub fn forward_to_client(name: &str, options: &[&str]) -> bool {
    !is_hop_by_hop(name, options)
        && !name.starts_with("access-control-")
        && !name.starts_with("x-internal-")
        && !matches!(
            name,
            "content-length" | "x-request-id" | "server" | "x-powered-by" | "ratelimit" | "ratelimit-policy"
        )
}

fn is_hop_by_hop(name: &str, options: &[&str]) -> bool {
    const NAMES: [&str; 7] =
        ["connection", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];
    NAMES.contains(&name)
        || name.starts_with("proxy-")
        || options.iter().any(|option| option.eq_ignore_ascii_case(name))
}

/// Some servers read `x_user_id` as `X-User-Id`, so a name with an underscore could be any of these.
fn is_reserved(name: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["x-forwarded-", "x-internal-", "x-user-", "x-original-", "x-rewrite-", "x-http-method", "x-accel-"];
    name.contains('_')
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "content-length" | "expect" | "forwarded" | "host" | "via" | "x-real-ip" | "x-request-id")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(name: &str) -> bool {
        forward_to_upstream(&name.to_ascii_lowercase(), &[])
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
        let options = connection_options(["keep-alive, X-Secret ,close"].into_iter());
        for (name, passes) in [("x-secret", false), ("x-other", true)] {
            assert_eq!(
                (forward_to_upstream(name, &options), forward_to_client(name, &options)),
                (passes, passes),
                "{name}"
            );
        }
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
            assert!(!forward_to_client(name, &[]), "{name}");
        }
        for name in ["content-type", "retry-after", "allow", "www-authenticate", "etag", "cache-control", "date"] {
            assert!(forward_to_client(name, &[]), "{name}");
        }
    }

    #[test]
    fn each_name_of_the_edges_own_ends_here_alone() {
        for name in ["x-accel-redirect", "via", "expect", "x-user-id"] {
            assert!(!up(name) && forward_to_client(name, &[]), "{name}");
        }
        for name in ["content-length", "x-powered-by", "ratelimit", "ratelimit-policy", "proxy-status", "keep-alive"] {
            assert!(!forward_to_client(name, &[]), "{name}");
        }
        assert!(up("x-forwarded") && up("x-user"), "only what begins with these names and a hyphen");
    }
}
