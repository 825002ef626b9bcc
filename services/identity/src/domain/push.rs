//! Where a notification may be sent to, and when it is tried again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::pushes::{PushKind, PushSubscription};
use reqwest::Url;

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Where a device is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) endpoint: String,
    /// P-256, uncompressed.
    pub(crate) p256dh: Vec<u8>,
    pub(crate) auth: Vec<u8>,
}

/// A subscription that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSubscription {
    #[error("must be an https address with a public name, and without a user")]
    Endpoint,
    #[error("must be a point on P-256: 65 bytes in base64url")]
    PublicKey,
    #[error("must be 16 bytes in base64url")]
    Auth,
}

/// Addresses that may be called although they are not public or not https, as in `http://127.0.0.1:9000`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedOrigins(Vec<String>);

impl TrustedOrigins {
    pub(crate) fn new(origins: Vec<String>) -> Self {
        Self(origins)
    }

    pub(crate) fn contains(&self, url: &Url) -> bool {
        self.0.iter().any(|origin| *origin == url.origin().ascii_serialization())
    }
}

impl Subscription {
    pub(crate) fn new(given: PushSubscription, trusted: &TrustedOrigins) -> Result<Self, BadSubscription> {
        let endpoint = given.endpoint.into_string();
        let url = Url::parse(&endpoint).map_err(|_| BadSubscription::Endpoint)?;
        if !trusted.contains(&url) && !is_public_name(&url) {
            return Err(BadSubscription::Endpoint);
        }
        let decode = |text: String| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let p256dh = decode(given.keys.p256dh.into_string()).ok_or(BadSubscription::PublicKey)?;
        if p256dh.len() != 65 || p256::PublicKey::from_sec1_bytes(&p256dh).is_err() {
            return Err(BadSubscription::PublicKey);
        }
        let auth = decode(given.keys.auth.into_string()).filter(|auth| auth.len() == 16);
        Ok(Self { endpoint: url.into(), p256dh, auth: auth.ok_or(BadSubscription::Auth)? })
    }
}

/// Whether the address looks public. What its name leads to is checked again when it is called.
fn is_public_name(url: &Url) -> bool {
    let named = url.domain().is_some_and(|name| name.trim_end_matches('.').contains('.'));
    url.scheme() == "https" && named && url.username().is_empty() && url.password().is_none()
}

/// Whether an address belongs to the public network (IANA's registries of special-purpose addresses).
pub(crate) fn is_public(address: IpAddr) -> bool {
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

/// What a device is notified of, as it is stored.
pub(crate) fn kinds_text(kinds: &[PushKind]) -> String {
    let names: Vec<&str> =
        PushKind::ALL.into_iter().filter(|kind| kinds.contains(kind)).map(PushKind::as_str).collect();
    names.join(",")
}

/// The reverse. Nothing stored means everything.
pub(crate) fn kinds(stored: Option<&str>) -> Vec<PushKind> {
    let Some(stored) = stored else { return PushKind::ALL.into() };
    stored.split(',').filter_map(|name| name.parse().ok()).collect()
}

/// How long to wait after this many tries have failed, unless the push service says more.
pub(crate) fn wait(tries: i32, asked: Option<Duration>) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << tries.clamp(1, 12).unsigned_abs().saturating_sub(1));
    doubled.min(LONGEST_WAIT).max(asked.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ensemble_types::pushes::PushKeys;
    use ensemble_types::text::{Blob, Text};

    use super::*;

    fn given(endpoint: &str, point: &[u8], auth: &[u8]) -> PushSubscription {
        let keys = PushKeys {
            p256dh: Blob::new(URL_SAFE_NO_PAD.encode(point)).unwrap(),
            auth: Blob::new(URL_SAFE_NO_PAD.encode(auth)).unwrap(),
        };
        PushSubscription { endpoint: Text::new(endpoint).unwrap(), keys }
    }

    fn point() -> Vec<u8> {
        let key = p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap();
        key.verifying_key().to_encoded_point(false).as_bytes().to_vec()
    }

    #[test]
    fn an_endpoint_is_a_public_https_address() {
        let trusted = TrustedOrigins::new(vec!["http://127.0.0.1:9000".to_owned()]);
        let new = |endpoint: &str| Subscription::new(given(endpoint, &point(), &[1; 16]), &trusted);
        for good in ["https://push.example.com/a?b", "https://push.example.com:8443/a", "http://127.0.0.1:9000/x"] {
            assert!(new(good).is_ok(), "{good}");
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
            assert_eq!(new(bad), Err(BadSubscription::Endpoint), "{bad}");
        }
    }

    #[test]
    fn keys_are_a_point_and_sixteen_bytes() {
        let new = |point: &[u8], auth: &[u8]| {
            Subscription::new(given("https://push.example.com", point, auth), &TrustedOrigins::default())
        };
        let mut off = point();
        off[40] ^= 1;
        assert_eq!(new(&off, &[1; 16]), Err(BadSubscription::PublicKey));
        assert_eq!(new(&[4; 65], &[1; 16]), Err(BadSubscription::PublicKey));
        assert_eq!(new(&point(), &[1; 17]), Err(BadSubscription::Auth));
        assert!(new(&point(), &[1; 16]).is_ok());
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

    #[test]
    fn kinds_are_stored_in_one_order_and_nothing_is_all() {
        assert_eq!(kinds(None), PushKind::ALL);
        assert_eq!(kinds(Some("")), []);
        let some = [PushKind::Away, PushKind::Permission, PushKind::Away];
        assert_eq!(kinds_text(&some), "permission,away");
        assert_eq!(kinds(Some("permission,away")), [PushKind::Permission, PushKind::Away]);
    }

    #[test]
    fn waits_double_and_are_bounded() {
        let seconds = |tries, asked: Option<u64>| wait(tries, asked.map(Duration::from_secs)).as_secs();
        assert_eq!([seconds(1, None), seconds(2, None), seconds(3, None)], [10, 20, 40]);
        assert_eq!(seconds(50, None), 3_600);
        assert_eq!([seconds(1, Some(5)), seconds(1, Some(500))], [10, 500]);
    }
}
