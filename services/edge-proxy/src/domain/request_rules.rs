//! Which requests pass, judged by the head that the server has parsed (RFC 9112, sections 3 and 6).
//!
//! A request that two programs read differently can reach what it should not. So a request passes only when every reader
//! must understand it alike.

use ensemble_types::problem::{Code, Problem};

/// The methods that services understand. CONNECT and TRACE are not among them: a reverse proxy must never honour those.
pub const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The longest target, in bytes.
pub const MAX_TARGET: usize = 8 * 1024;

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    pub fields: usize,
    /// Bytes of all names and values.
    pub bytes: usize,
}

/// A request's head as the server has parsed it. The server refuses a second `Host`, `Content-Length` or
/// `Transfer-Encoding`, and a length that is not one number.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub method: &'a str,
    pub is_http_10: bool,
    /// The authority of a target in absolute-form.
    pub authority: Option<&'a str>,
    /// Path and query.
    pub target: &'a str,
    /// Names in lower case.
    pub fields: &'a [(&'a str, &'a [u8])],
}

/// Refuses what two readers could understand differently, and what is too large. Fails with the first thing that is wrong.
pub fn check(head: &Head<'_>, limits: HeadLimits) -> Result<(), Problem> {
    if !METHODS.split(", ").any(|method| method == head.method) {
        return Err(Problem::new(Code::MethodNotAllowed, format!("Use one of {METHODS}.")));
    }
    check_target(head.target)?;
    let bytes: usize = head.fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if head.fields.len() > limits.fields || bytes > limits.bytes {
        return Err(Problem::new(Code::HeadersTooLarge, "The header fields are more or larger than the edge accepts."));
    }
    check_host(head)?;
    check_framing(head)?;
    if head.fields.iter().any(|(name, value)| *name == "upgrade" && value.eq_ignore_ascii_case(b"websocket")) {
        return Err(malformed("There are no WebSockets here. Read a stream of events instead."));
    }
    Ok(())
}

fn malformed(detail: &'static str) -> Problem {
    Problem::new(Code::InvalidArgument, detail)
}

impl<'a> Head<'a> {
    fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

fn check_host(head: &Head<'_>) -> Result<(), Problem> {
    let host = head.value("host").ok_or_else(|| malformed("Send exactly one `Host`."))?;
    let (name, port) = match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if !host.ends_with(b"]") => host.split_at(colon),
        _ => (host, &b":0"[..]),
    };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(byte);
    let is_port = port.len() <= 6 && port.iter().skip(1).all(u8::is_ascii_digit);
    if name.is_empty() || !name.iter().all(is_name) || !is_port {
        return Err(malformed("`Host` must be a name or an address, with or without a port."));
    }
    if head.authority.is_some_and(|authority| !authority.as_bytes().eq_ignore_ascii_case(host)) {
        return Err(malformed("The request target and `Host` name two hosts."));
    }
    Ok(())
}

/// RFC 9112, section 6.3: the body ends where every reader says it ends. The server accepts the coding `identity`, ignores
/// codings in HTTP/1.0, and lets a coding win over a length.
fn check_framing(head: &Head<'_>) -> Result<(), Problem> {
    let Some(coding) = head.value("transfer-encoding") else { return Ok(()) };
    if head.value("content-length").is_some() {
        return Err(malformed("Send `Content-Length` or `Transfer-Encoding`, not both."));
    }
    if head.is_http_10 || !coding.eq_ignore_ascii_case(b"chunked") {
        return Err(malformed("The only `Transfer-Encoding` is `chunked`, once, in HTTP/1.1."));
    }
    Ok(())
}

/// Refuses a path or path and query that two readers could understand differently. Fails with the reason.
pub fn check_target(target: &str) -> Result<(), Problem> {
    if target.len() > MAX_TARGET {
        return Err(Problem::new(Code::UriTooLong, "The address is longer than the edge accepts."));
    }
    if !target.starts_with('/') {
        return Err(malformed("The request target must be a path."));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    check_path(path)?;
    check_query(query.as_bytes())
}

fn check_path(path: &str) -> Result<(), Problem> {
    // A slash, a percent sign, or any other character of a segment (RFC 3986, section 3.3).
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/%-._~!$&'()*+,;=:@".contains(&byte);
    if !path.bytes().all(is_allowed) {
        return Err(malformed("The path has a character that must be percent-encoded."));
    }
    if path.contains("//") {
        return Err(malformed("The path has an empty segment (`//`)."));
    }
    // Some servers drop what follows a semicolon before they resolve dot segments.
    if path.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | ".."))) {
        return Err(malformed("The path has a dot segment (`.` or `..`)."));
    }
    path.split('%').skip(1).try_for_each(check_escape)
}

/// `after` is what follows a percent sign. Encoded dots, slashes, backslashes and control characters have one use only:
/// to look different to two readers.
fn check_escape(after: &str) -> Result<(), Problem> {
    // A number may begin with a plus sign, an escape may not.
    let digits = after.get(..2).filter(|digits| !digits.starts_with('+'));
    match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        None => Err(malformed("The path has a percent sign without two hexadecimal digits.")),
        Some(b'.' | b'/' | b'\\' | 0..=0x1f | 0x7f) => {
            Err(malformed("The path has an encoded dot, slash, backslash or control character."))
        }
        Some(_) => Ok(()),
    }
}

fn check_query(query: &[u8]) -> Result<(), Problem> {
    if query.iter().all(|byte| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'#' | b'"' | b'<' | b'>')) {
        return Ok(());
    }
    Err(malformed("The query has a character that must be percent-encoded."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_and_queries_pass() {
        for target in [
            "/",
            "/v1/sessions",
            "/v3/sessions/0190/messages?after=5&limit=50",
            "/v1/machines/my_machine-1",
            "/docs/",
            "/a.b/..c/c../d",
            "/.well-known/jwks.json",
            "/x?path=/../..//%2e%00",
            "/x%20y",
        ] {
            assert_eq!(check_target(target), Ok(()), "{target}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for target in [
            "",
            "*",
            "v1/sessions",
            "//",
            "/v1//sessions",
            "/v1/sessions//",
            "/.",
            "/..",
            "/v1/../x",
            "/v1/./x",
            "/v1/..",
            "/..;/x",
            "/.;a",
            "/%2e",
            "/%2E%2e/x",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/%00",
            "/%0a",
            "/%7f",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/a b",
            "/a\"b",
            "/<x>",
            "/a#b",
            "/a?b#c",
            "/a?b c",
            "/a?<b>",
            "/\u{e9}",
            "/a?\u{e9}",
        ] {
            assert_eq!(check_target(target).map_err(|refusal| refusal.code), Err(Code::InvalidArgument), "{target:?}");
        }
    }

    fn judge(method: &str, authority: Option<&str>, is_http_10: bool, fields: &[(&str, &[u8])]) -> Option<Code> {
        let head = Head { method, is_http_10, authority, target: "/", fields };
        check(&head, HeadLimits { fields: 4, bytes: 200 }).err().map(|refusal| refusal.code)
    }

    #[test]
    fn a_head_has_one_host_and_one_length() {
        let host: (&str, &[u8]) = ("host", b"edge:8080");
        let length = |value: &'static str| ("content-length", value.as_bytes());
        let coding = |value: &'static str| ("transfer-encoding", value.as_bytes());
        for fields in [
            &[host][..],
            &[("host", b"[::1]")],
            &[("host", b"[::1]:80")],
            &[host, length("5")],
            &[host, coding("Chunked")],
        ] {
            assert_eq!(judge("POST", None, false, fields), None, "{fields:?}");
        }
        for fields in [
            &[][..],
            &[("host", &b""[..])],
            &[("host", b"a/b@c")],
            &[("host", b"a, b")],
            &[("host", b"a:b")],
            &[host, length("5"), coding("chunked")],
            &[host, coding("gzip, chunked")],
            &[host, coding("identity")],
            &[host, ("upgrade", b"websocket")],
        ] {
            assert_eq!(judge("POST", None, false, fields), Some(Code::InvalidArgument), "{fields:?}");
        }
        assert_eq!(judge("POST", None, true, &[host, coding("chunked")]), Some(Code::InvalidArgument));
        assert_eq!(judge("GET", Some("EDGE:8080"), false, &[host]), None);
        assert_eq!(judge("GET", Some("other"), false, &[host]), Some(Code::InvalidArgument));
    }

    #[test]
    fn methods_and_sizes_are_limited() {
        let host: (&str, &[u8]) = ("host", b"edge");
        for method in ["CONNECT", "TRACE", "get", "PROPFIND", "GET, HEAD"] {
            assert_eq!(judge(method, None, false, &[host]), Some(Code::MethodNotAllowed), "{method}");
        }
        assert_eq!(judge("GET", None, false, &[host; 5]), Some(Code::HeadersTooLarge));
        assert_eq!(judge("GET", None, false, &[host, ("x", &[b'y'; 200])]), Some(Code::HeadersTooLarge));
    }

    #[test]
    fn a_long_target_is_414() {
        let target = format!("/{}", "a".repeat(8_192));
        assert_eq!(check_target(&target).map_err(|refusal| refusal.code), Err(Code::UriTooLong));
        assert!(check_target(&target[..8_192]).is_ok());
    }

    #[test]
    fn a_head_may_have_exactly_the_fields_and_bytes_of_its_limits() {
        let host: (&str, &[u8]) = ("host", b"edge");
        let other: (&str, &[u8]) = ("x", b"");
        assert_eq!(judge("GET", None, false, &[host, other, other, other]), None);
        // Each field counts four bytes more, for the colon, the space and the end of its line.
        let rest = [b'y'; 200 - (4 + 4 + 4) - (1 + 4)];
        assert_eq!(judge("GET", None, false, &[host, ("x", &rest)]), None);
        assert_eq!(judge("GET", None, false, &[host, ("xx", &rest)]), Some(Code::HeadersTooLarge));
    }

    #[test]
    fn a_host_has_a_name_and_a_short_port() {
        for (host, valid) in [
            ("edge.example-1_x~", true),
            ("edge:65535", true),
            ("edge:", true),
            ("edge:123456", false),
            (":80", false),
            ("edge:8o", false),
            ("edge?", false),
        ] {
            let verdict = judge("GET", None, false, &[("host", host.as_bytes())]);
            assert_eq!(verdict.is_none(), valid, "{host}");
        }
    }

    #[test]
    fn only_upgrades_to_websockets_are_refused() {
        let host: (&str, &[u8]) = ("host", b"edge");
        assert_eq!(judge("GET", None, false, &[host, ("upgrade", b"h2c")]), None);
        assert_eq!(judge("GET", None, false, &[host, ("x", b"websocket")]), None);
        assert_eq!(judge("GET", None, false, &[host, ("upgrade", b"WebSocket")]), Some(Code::InvalidArgument));
    }
}
