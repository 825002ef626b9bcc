//! Calls to addresses that others name: they can lead anywhere, also into the operator's own network.
//!
//! An address is called over https, has a public name, and leads to a public address at the time of each connection. An operator lists
//! the origins that are exempt. No redirect is followed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ensemble_types::time::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Url};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The longest wait that a receiver may ask for.
const LONGEST_ASKED: u64 = 24 * 60 * 60;
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Origins that may be called although they are not public or not https, as in `http://127.0.0.1:9000`.
#[derive(Clone, Debug, Default)]
pub struct TrustedOrigins(Vec<String>);

impl TrustedOrigins {
    pub fn new(origins: Vec<String>) -> Self {
        Self(origins)
    }

    pub fn contains(&self, url: &Url) -> bool {
        self.0.iter().any(|origin| *origin == url.origin().ascii_serialization())
    }

    /// Whether this address may be called. What its name leads to is checked again when it is called.
    pub fn allow(&self, url: &Url) -> bool {
        self.contains(url) || is_public_name(url)
    }
}

/// The clients for such calls. Cheap to clone.
#[derive(Clone)]
pub struct Outward {
    public: Client,
    trusted: Client,
    origins: TrustedOrigins,
}

impl Outward {
    /// `deadline`: for a whole call.
    ///
    /// # Errors
    /// The system's TLS settings cannot be read.
    pub fn new(origins: TrustedOrigins, deadline: Duration) -> Result<Self, reqwest::Error> {
        let client = || {
            Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .timeout(deadline)
                .pool_idle_timeout(Duration::from_secs(60))
        };
        let public = client().https_only(true).dns_resolver(Arc::new(PublicAddresses)).build()?;
        Ok(Self { public, trusted: client().build()?, origins })
    }

    pub fn origins(&self) -> &TrustedOrigins {
        &self.origins
    }

    /// A POST there. The address was allowed before.
    pub fn post(&self, url: Url) -> RequestBuilder {
        let client = if self.origins.contains(&url) { &self.trusted } else { &self.public };
        client.post(url)
    }
}

/// What an answer says about when to come again: seconds, or a date (RFC 9110, section 10.2.3).
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    waits(headers.get(RETRY_AFTER)?.to_str().ok()?.trim(), now)
}

fn waits(text: &str, now: Timestamp) -> Option<Duration> {
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
            Timestamp::from_unix_seconds(at.unix_timestamp()).since(now)
        }
    };
    Some(wait.min(Duration::from_secs(LONGEST_ASKED)))
}

/// How long to wait after this many tries have failed: `first`, and doubled each time up to an hour, unless the receiver asked for more.
pub fn backoff(first: Duration, tries: i32, asked: Option<Duration>) -> Duration {
    let doubled = first.saturating_mul(1 << tries.clamp(1, 16).unsigned_abs().saturating_sub(1));
    doubled.min(LONGEST_WAIT).max(asked.unwrap_or_default())
}

/// Whether the address looks public.
fn is_public_name(url: &Url) -> bool {
    let named = url.domain().is_some_and(|name| name.trim_end_matches('.').contains('.'));
    url.scheme() == "https" && named && url.username().is_empty() && url.password().is_none()
}

/// Resolves names to public addresses only, at the time of each connection.
struct PublicAddresses;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err("the name leads to no public address".into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address belongs to the public network (IANA's registries of special-purpose addresses).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., ..)
            | (169, 254, _)
            | (192, 168, _)
            | (100, 64..=127, _)
            | (172, 16..=31, _)
            | (198, 18 | 19, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    // Global unicast without documentation, Teredo and 6to4, which lead to other addresses.
    match address.segments() {
        [0x2001, 0 | 0xdb8, ..] | [0x2002, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn an_allowed_address_is_public_and_https_or_listed() {
        let trusted = TrustedOrigins::new(vec!["http://127.0.0.1:9000".to_owned()]);
        let allows = |address: &str| Url::parse(address).is_ok_and(|url| trusted.allow(&url));
        for good in ["https://push.example.com/a?b", "https://push.example.com:8443/a", "http://127.0.0.1:9000/x"] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "http://push.example.com/a",
            "https://10.0.0.1/a",
            "https://[::1]/a",
            "https://0x7f.1/a",
            "https://2130706433/a",
            "https://localhost/a",
            "https://intranet/a",
            "https://me@push.example.com/a",
            "https://me:it@push.example.com/a",
            "http://127.0.0.1:9001/x",
            "https://127.0.0.1:9000/x",
            "file:///etc/passwd",
            "push",
        ] {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn only_public_addresses_are_called() {
        for public in ["8.8.8.8", "100.63.0.1", "172.32.0.1", "198.20.0.1", "2606:4700::1", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_leads_nowhere() {
        let name = Name::from_str("localhost").unwrap();
        assert!(PublicAddresses.resolve(name).await.is_err());
    }

    #[test]
    fn a_receiver_asks_for_seconds_or_names_a_date() {
        let now = Timestamp::from_unix_seconds(784_111_777 - 60);
        for (text, expected) in [
            ("5", Some(5)),
            ("99999999", Some(LONGEST_ASKED)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(60)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 2094 08:49:37 GMT", Some(LONGEST_ASKED)),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(waits(text, now), expected.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn waits_double_and_are_bounded() {
        let first = Duration::from_secs(10);
        let seconds = |tries, asked: Option<u64>| backoff(first, tries, asked.map(Duration::from_secs)).as_secs();
        assert_eq!([seconds(1, None), seconds(2, None), seconds(3, None)], [10, 20, 40]);
        assert_eq!([seconds(50, None), seconds(i32::MAX, None)], [3_600; 2]);
        assert_eq!([seconds(1, Some(5)), seconds(1, Some(500))], [10, 500]);
    }
}
