//! The origin that a client signs in to: scheme, host and port (RFC 6454, section 6.2).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An origin in its one normal form: lower case, without the port that goes with the scheme.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin(String);

/// The text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be scheme, host and perhaps port, as in https://api.example.com")]
pub(crate) struct MalformedOrigin;

impl FromStr for Origin {
    type Err = MalformedOrigin;

    fn from_str(text: &str) -> Result<Self, MalformedOrigin> {
        let lower = text.to_ascii_lowercase();
        let (scheme, rest) = lower.split_once("://").ok_or(MalformedOrigin)?;
        let usual = match scheme {
            "http" => "80",
            "https" => "443",
            _ => return Err(MalformedOrigin),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            // A colon inside brackets is part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let bracketed = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let good_host = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
            }
        };
        let good_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number.to_string() == port));
        if !good_host || !good_port {
            return Err(MalformedOrigin);
        }
        let port = port.filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self(format!("{scheme}://{host}{port}")))
    }
}

impl Origin {
    /// Whether it leads to the computer on which it is opened.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.split_once("://").map_or("", |(_, authority)| authority);
        let host = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => host,
        };
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_this_computer_is_known() {
        let is_loopback = |text: &str| text.parse::<Origin>().unwrap().is_loopback();
        for here in
            ["http://127.0.0.1:8080", "http://127.9.9.9", "http://[::1]:8080", "http://[::1]", "https://localhost"]
        {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in
            ["https://a.example", "http://10.0.0.1:8080", "http://localhost.example", "http://[2001:db8::1]"]
        {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn one_origin_has_one_form() {
        for (text, normal) in [
            ("https://api.example.com", "https://api.example.com"),
            ("HTTPS://API.example.com:443/", "https://api.example.com"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]:80", "http://[::1]"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), normal);
        }
        for text in [
            "",
            "api.example.com",
            "ftp://a",
            "https://",
            "https://a/b",
            "https://u@a",
            "https://a:",
            "https://a:0x1",
            "https://a:70000",
            "https://a:080",
            "https://a?b",
            "https://a#b",
            "https://a b",
            "http://[::1",
            "http://[x]",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(MalformedOrigin), "{text}");
        }
    }
}
