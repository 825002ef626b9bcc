//! Which addresses a tool bridge may have. A caller names the address, and the agent sends a credential to it. Only origins
//! that the operator listed are accepted, and only URLs that every parser reads in the same way.

/// The origins that the operator listed, as `scheme://host[:port]` in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedOrigins(Vec<String>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadToolBridge {
    #[error("must be an absolute http or https URL without user, query or fragment")]
    Malformed,
    #[error("must be at an origin that this gateway's operator allows")]
    NotAllowed,
}

impl AllowedOrigins {
    pub(crate) fn new(origins: impl IntoIterator<Item = String>) -> Result<Self, BadToolBridge> {
        origins.into_iter().map(|text| parse(&text).map(|url| url.origin)).collect::<Result<_, _>>().map(Self)
    }

    /// The address without its trailing slash, if its origin is on the list.
    pub(crate) fn check(&self, url: &str) -> Result<String, BadToolBridge> {
        let parsed = parse(url)?;
        if !self.0.contains(&parsed.origin) {
            return Err(BadToolBridge::NotAllowed);
        }
        Ok(format!("{}{}", parsed.origin, parsed.path.trim_end_matches('/')))
    }
}

struct Parsed<'a> {
    origin: String,
    path: &'a str,
}

/// Accepts the plain form only: no user information, no escapes or backslashes, no dot segments, no unusual characters.
fn parse(url: &str) -> Result<Parsed<'_>, BadToolBridge> {
    let (scheme, rest) = url.split_once("://").ok_or(BadToolBridge::Malformed)?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => "443",
        "http" => "80",
        _ => return Err(BadToolBridge::Malformed),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let plain = |text: &str, extra: &[u8]| text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b));
    if !plain(path, b"/-._~") || path.split('/').any(|segment| segment == "." || segment == "..") || path.contains("//")
    {
        return Err(BadToolBridge::Malformed);
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((inner, after)) => {
            let port =
                if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(BadToolBridge::Malformed)?) };
            if !inner.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') {
                return Err(BadToolBridge::Malformed);
            }
            (format!("[{inner}]"), port)
        }
        None => {
            let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
            if host.is_empty() || !plain(host, b"-.") {
                return Err(BadToolBridge::Malformed);
            }
            (host.trim_end_matches('.').to_ascii_lowercase(), port)
        }
    };
    let port = match port {
        None => String::new(),
        Some(text) => {
            // `parse` also accepts a sign, which a URL does not allow.
            let digits = Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let number = digits.and_then(|text| text.parse::<u16>().ok()).ok_or(BadToolBridge::Malformed)?;
            if number.to_string() == default_port { String::new() } else { format!(":{number}") }
        }
    };
    Ok(Parsed { origin: format!("{scheme}://{host}{port}"), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_pass() {
        let list = AllowedOrigins::new(["https://app.example".to_owned(), "http://127.0.0.1:3000".to_owned()]).unwrap();
        assert_eq!(list.check("https://APP.example:443/tools/").unwrap(), "https://app.example/tools");
        assert_eq!(list.check("http://127.0.0.1:3000").unwrap(), "http://127.0.0.1:3000");
        // A trailing dot does not change which host a name means.
        assert_eq!(list.check("https://app.example./tools").unwrap(), "https://app.example/tools");
        for other in [
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil",
            "https://evil/app.example",
            "https://app.example-evil",
            "http://127.0.0.1",
            "http://127.0.0.1:3001",
            "http://2130706433:3000",
            "http://0x7f000001:3000",
            "http://0177.0.0.1:3000",
            "http://127.1:3000",
            "http://localhost.:3000",
            "http://[::1]:3000",
            "http://169.254.169.254",
        ] {
            assert_eq!(list.check(other), Err(BadToolBridge::NotAllowed), "{other}");
        }
    }

    #[test]
    fn ambiguous_urls_are_refused() {
        let list = AllowedOrigins::new(["https://app.example".to_owned()]).unwrap();
        for trick in [
            "https://app.example@evil",
            "https://evil\\@app.example",
            "https://app.example\\.evil",
            "//app.example",
            "app.example",
            "https://",
            "https://app.example/../x",
            "https://app.example/?a=b",
            "https://app.example/#x",
            "https://app.example:99999",
            "https://app.example:+443",
            "https://app.example:",
            "https://user@app.example",
            "https://:443",
            "https://app.example/%2e%2e/x",
            "https://app.example//evil",
            "https://[::ffff:127.0.0.1]",
            "https://app.example\n.evil",
            "https:app.example",
            "javascript://app.example",
            "https://app.example%2eevil",
            "https://äpp.example",
            "https://app.example /",
        ] {
            assert_eq!(list.check(trick), Err(BadToolBridge::Malformed), "{trick}");
        }
    }

    #[test]
    fn an_origin_has_one_form() {
        let list = AllowedOrigins::new(["https://[::1]:8443/".to_owned(), "http://b.example:80".to_owned()]).unwrap();
        assert_eq!(list.check("HTTPS://[::1]:8443/a/b_c-d.e~f/").unwrap(), "https://[::1]:8443/a/b_c-d.e~f");
        assert_eq!(list.check("http://b.example").unwrap(), "http://b.example");
        assert_eq!(list.check("https://[::1]"), Err(BadToolBridge::NotAllowed));
        for bad in
            ["https://[::1]8443", "https://[::1]:x", "https://[::g]:8443", "https://[::1]:8443/a/./b", "http:///a"]
        {
            assert_eq!(list.check(bad), Err(BadToolBridge::Malformed), "{bad}");
        }
        assert!(AllowedOrigins::new(["app.example".to_owned()]).is_err());
    }
}
