//! Where a notification may be sent to, and when it is tried again.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_chassis::outward::{TrustedOrigins, backoff};
use ensemble_types::pushes::{PushKind, PushSubscription};
use reqwest::Url;

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

impl Subscription {
    pub(crate) fn new(given: PushSubscription, trusted: &TrustedOrigins) -> Result<Self, BadSubscription> {
        let endpoint = given.endpoint.into_string();
        let url = Url::parse(&endpoint).map_err(|_| BadSubscription::Endpoint)?;
        if !trusted.allow(&url) {
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
    backoff(FIRST_WAIT, tries, asked)
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
    fn kinds_are_stored_in_one_order_and_nothing_is_all() {
        assert_eq!(kinds(None), PushKind::ALL);
        assert_eq!(kinds(Some("")), []);
        let some = [PushKind::Away, PushKind::Permission, PushKind::Away];
        assert_eq!(kinds_text(&some), "permission,away");
        assert_eq!(kinds(Some("permission,away")), [PushKind::Permission, PushKind::Away]);
    }

    #[test]
    fn a_push_service_is_asked_again_after_ten_seconds_then_later_or_when_it_says() {
        for (tries, asked, seconds) in
            [(1, None, 10), (2, None, 20), (4, None, 80), (1, Some(60), 60), (4, Some(60), 80)]
        {
            assert_eq!(wait(tries, asked.map(Duration::from_secs)).as_secs(), seconds, "{tries} {asked:?}");
        }
    }
}
