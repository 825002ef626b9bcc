//! Push services: the addresses that browsers name, called with care because anybody can make one up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ensemble_types::time::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, StatusCode, Url};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use web_push_native::{Auth, encrypt};

use crate::domain::{Subscription, TrustedOrigins, is_public};
use crate::keys::Vapid;

/// For a whole call.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest wait that a push service may ask for.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// What became of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Taken,
    /// The subscription has ended (RFC 8030, section 7.3).
    Gone,
    /// It will not be taken, however often it is sent.
    Refused,
    /// It may be taken later, at the earliest after this time.
    Later(Option<Duration>),
    /// The push service did not answer.
    Silent,
}

/// A notification for one device.
pub(crate) struct Notification<'a> {
    pub(crate) to: &'a Subscription,
    pub(crate) payload: &'a str,
    /// One that was not delivered is replaced by the next with the same topic (RFC 8030, section 5.4).
    pub(crate) topic: &'a str,
    pub(crate) is_urgent: bool,
    pub(crate) expires_at: Timestamp,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct PushServices {
    public: Client,
    /// For origins that the operator trusts.
    trusted: Client,
    trusted_origins: TrustedOrigins,
    vapid: Vapid,
}

impl PushServices {
    pub(crate) fn new(vapid: Vapid, trusted_origins: TrustedOrigins) -> Result<Self, reqwest::Error> {
        let client = || {
            Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .timeout(DEADLINE)
                .pool_idle_timeout(Duration::from_secs(60))
        };
        let public = client().https_only(true).dns_resolver(Arc::new(PublicAddresses)).build()?;
        Ok(Self { public, trusted: client().build()?, trusted_origins, vapid })
    }

    pub(crate) fn public_key(&self) -> String {
        self.vapid.public_key()
    }

    pub(crate) fn trusted_origins(&self) -> &TrustedOrigins {
        &self.trusted_origins
    }

    /// Sends one notification. Nothing of the answer's body is read.
    pub(crate) async fn send(&self, notification: &Notification<'_>, now: Timestamp) -> Sent {
        let Ok(url) = Url::parse(&notification.to.endpoint) else { return Sent::Refused };
        let key = p256::PublicKey::from_sec1_bytes(&notification.to.p256dh);
        let (Ok(key), 16) = (key, notification.to.auth.len()) else { return Sent::Refused };
        let auth = Auth::clone_from_slice(&notification.to.auth);
        let Ok(body) = encrypt(notification.payload.as_bytes().to_vec(), &key, &auth) else { return Sent::Refused };
        let client = if self.trusted_origins.contains(&url) { &self.trusted } else { &self.public };
        let authorization = self.vapid.authorization(&url.origin().ascii_serialization(), now);
        let request = client
            .post(url)
            .header("authorization", authorization)
            .header("content-encoding", "aes128gcm")
            .header("content-type", "application/octet-stream")
            .header("ttl", notification.expires_at.since(now).as_secs())
            .header("topic", notification.topic)
            .header("urgency", if notification.is_urgent { "high" } else { "normal" })
            .body(body);
        match request.send().await {
            Ok(answer) => outcome(answer.status(), retry_after(&answer, now)),
            Err(error) => {
                tracing::debug!(error = %error.without_url(), "A push service could not be reached");
                Sent::Silent
            }
        }
    }
}

fn outcome(status: StatusCode, after: Option<Duration>) -> Sent {
    match status {
        _ if status.is_success() => Sent::Taken,
        StatusCode::NOT_FOUND | StatusCode::GONE => Sent::Gone,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Sent::Later(after),
        _ if status.is_server_error() => Sent::Later(after),
        _ => Sent::Refused,
    }
}

fn retry_after(answer: &reqwest::Response, now: Timestamp) -> Option<Duration> {
    waits(answer.headers().get("retry-after")?.to_str().ok()?.trim(), now)
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
fn waits(text: &str, now: Timestamp) -> Option<Duration> {
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
            Timestamp::from_unix_seconds(at.unix_timestamp()).since(now)
        }
    };
    Some(wait.min(Duration::from_secs(LONGEST_WAIT)))
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

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn a_push_service_asks_for_seconds_or_names_a_date() {
        let now = Timestamp::from_unix_seconds(784_111_777 - 60);
        for (text, expected) in [
            ("5", Some(5)),
            ("99999999", Some(LONGEST_WAIT)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(60)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 2094 08:49:37 GMT", Some(LONGEST_WAIT)),
            ("-1", None),
            ("soon", None),
        ] {
            assert_eq!(waits(text, now), expected.map(Duration::from_secs), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_leads_nowhere() {
        let name = Name::from_str("localhost").unwrap();
        assert!(PublicAddresses.resolve(name).await.is_err());
    }

    #[test]
    fn answers_mean_what_the_standard_says() {
        let of = |status: u16| outcome(StatusCode::from_u16(status).unwrap(), Some(Duration::from_secs(3)));
        assert_eq!([of(200), of(201), of(204)], [Sent::Taken; 3]);
        assert_eq!([of(404), of(410)], [Sent::Gone; 2]);
        assert_eq!([of(429), of(500), of(503)], [Sent::Later(Some(Duration::from_secs(3))); 3]);
        assert_eq!([of(301), of(400), of(401), of(403), of(413)], [Sent::Refused; 5]);
    }
}
