//! Which request targets pass (RFC 9112, section 3.2).
//!
//! Two programs that read one path differently are how requests reach what they should not. So a path passes only when
//! every reader must understand it alike. One thing is written anew, because all agree on what it means: letters, digits
//! and the like that were percent-encoded without need.

use std::borrow::Cow;

use super::refusal::{Refusal, URI_TOO_LONG};

/// The longest target, in bytes.
pub const MAX_TARGET: usize = 8 * 1024;

/// The authority of an absolute-form target, which must equal the Host field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a>(pub Option<&'a [u8]>);

/// Checks a target in origin-form or absolute-form.
///
/// # Errors
/// The reason why some reader might take it for another path.
pub fn check(target: &[u8]) -> Result<Authority<'_>, Refusal> {
    if target.len() > MAX_TARGET {
        return Err(URI_TOO_LONG);
    }
    let (authority, rest) = split_authority(target)?;
    let (path, query) = match rest.iter().position(|byte| *byte == b'?') {
        Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default()),
        None => (rest, &[][..]),
    };
    check_path(path)?;
    check_query(query)?;
    Ok(Authority(authority))
}

fn split_authority(target: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Refusal> {
    if target.first() == Some(&b'/') {
        return Ok((None, target));
    }
    let Some(after_scheme) = strip_scheme(target) else {
        return Err(Refusal::malformed("The request target must be a path."));
    };
    let end = after_scheme.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after_scheme.len());
    let (authority, path) = after_scheme.split_at(end);
    if path.first() != Some(&b'/') {
        return Err(Refusal::malformed("The request target must have a path."));
    }
    Ok((Some(authority), path))
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| target.split_at_checked(scheme.len()).filter(|(head, _)| head.eq_ignore_ascii_case(scheme)))
        .map(|(_, rest)| rest)
}

fn check_path(path: &[u8]) -> Result<(), Refusal> {
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'/' => check_segment_start(after)?,
            b'%' => rest = check_escape(after)?,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {}
            // The rest of pchar (RFC 3986, section 3.3).
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
            | b':' | b'@' => {}
            _ => return Err(Refusal::malformed("The path has a character that must be percent-encoded.")),
        }
    }
    Ok(())
}

/// `after` is what follows a slash: neither another slash nor a dot segment may.
fn check_segment_start(after: &[u8]) -> Result<(), Refusal> {
    match after {
        [b'/', ..] => Err(Refusal::malformed("The path has an empty segment (`//`).")),
        [b'.'] | [b'.', b'/' | b';', ..] | [b'.', b'.'] | [b'.', b'.', b'/' | b';', ..] => {
            Err(Refusal::malformed("The path has a dot segment (`.` or `..`)."))
        }
        _ => Ok(()),
    }
}

/// `after` is what follows a percent sign. Encoded dots, slashes, backslashes and control characters have one use only:
/// to look different to two readers.
fn check_escape(after: &[u8]) -> Result<&[u8], Refusal> {
    let (digits, rest) = after.split_at_checked(2).ok_or(BAD_ESCAPE)?;
    let value = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .and_then(|text| u8::from_str_radix(text, 16).ok())
        .ok_or(BAD_ESCAPE)?;
    match value {
        b'.' | b'/' | b'\\' | 0..=0x1f | 0x7f => {
            Err(Refusal::malformed("The path has an encoded dot, slash, backslash or control character."))
        }
        _ => Ok(rest),
    }
}

/// The path, or path and query, as everybody would write it who encodes no more than has to be: percent-encoded unreserved
/// characters of the path become themselves (RFC 3986, section 6.2.2.2). The edge and the services see the same path then.
pub fn normalise(target: &str) -> Cow<'_, str> {
    let path = target.split('?').next().unwrap_or_default();
    if !path.contains('%') {
        return Cow::Borrowed(target);
    }
    let mut plain = String::with_capacity(target.len());
    let mut rest = target;
    while let Some((before, escape)) = rest.split_once('%').filter(|(before, _)| !before.contains('?')) {
        plain.push_str(before);
        let digits = escape.get(..2);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        match byte.filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_' | '~')) {
            Some(byte) => {
                plain.push(byte);
                rest = escape.get(2..).unwrap_or_default();
            }
            None => {
                plain.push('%');
                rest = escape;
            }
        }
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

const BAD_ESCAPE: Refusal = Refusal::malformed("The path has a percent sign without two hexadecimal digits.");

fn check_query(query: &[u8]) -> Result<(), Refusal> {
    if query.iter().all(|byte| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'#' | b'"' | b'<' | b'>')) {
        return Ok(());
    }
    Err(Refusal::malformed("The query has a character that must be percent-encoded."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::problem::Code;

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
            assert_eq!(check(target.as_bytes()), Ok(Authority(None)), "{target}");
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
            "http:/x",
            "ftp://h/x",
            "http://host",
            "http://host?x",
        ] {
            assert_eq!(
                check(target.as_bytes()).map_err(|refusal| refusal.code),
                Err(Code::InvalidArgument),
                "{target:?}"
            );
        }
    }

    #[test]
    fn what_was_encoded_without_need_is_decoded_once() {
        for (target, plain) in [
            ("/v1/auth/%63hallenge", "/v1/auth/challenge"),
            ("/v1/orchestrator/%6C%65ases?x=%63", "/v1/orchestrator/leases?x=%63"),
            ("/%7Ea%2D%5fb%30", "/~a-_b0"),
            ("/%2563", "/%2563"),
            ("/%25%36%33", "/%2563"),
            ("/a%20b%3Fc%3a", "/a%20b%3Fc%3a"),
            ("/a%C3%A9%41", "/a%C3%A9A"),
            ("/plain?%41", "/plain?%41"),
            ("/a?b%41?c", "/a?b%41?c"),
        ] {
            assert_eq!(normalise(target), plain, "{target}");
            assert!(check(target.as_bytes()).is_ok(), "{target}");
        }
    }

    #[test]
    fn absolute_form_shows_its_authority() {
        assert_eq!(check(b"http://Example.com:80/v1?x"), Ok(Authority(Some(b"Example.com:80"))));
        assert_eq!(check(b"HTTPS://h/"), Ok(Authority(Some(b"h"))));
    }

    #[test]
    fn a_long_target_is_414() {
        let target = format!("/{}", "a".repeat(MAX_TARGET));
        assert_eq!(check(target.as_bytes()), Err(URI_TOO_LONG));
        assert!(check(&target.as_bytes()[..MAX_TARGET]).is_ok());
    }
}
