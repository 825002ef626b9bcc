//! Push services: the addresses that browsers name, called with care because anybody can make one up.

use std::time::Duration;

use ensemble_chassis::outward::{Outward, TrustedOrigins, retry_after};
use ensemble_types::time::Timestamp;
use reqwest::{StatusCode, Url};
use web_push_native::{Auth, encrypt};

use crate::domain::Subscription;
use crate::keys::Vapid;

/// For a whole call.
const DEADLINE: Duration = Duration::from_secs(10);

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
    outward: Outward,
    vapid: Vapid,
}

impl PushServices {
    pub(crate) fn new(vapid: Vapid, trusted_origins: TrustedOrigins) -> Result<Self, reqwest::Error> {
        Ok(Self { outward: Outward::new(trusted_origins, DEADLINE)?, vapid })
    }

    pub(crate) fn public_key(&self) -> String {
        self.vapid.public_key()
    }

    pub(crate) fn trusted_origins(&self) -> &TrustedOrigins {
        self.outward.origins()
    }

    /// Sends one notification. Nothing of the answer's body is read.
    pub(crate) async fn send(&self, notification: &Notification<'_>, now: Timestamp) -> Sent {
        let Ok(url) = Url::parse(&notification.to.endpoint) else { return Sent::Refused };
        let key = p256::PublicKey::from_sec1_bytes(&notification.to.p256dh);
        let (Ok(key), 16) = (key, notification.to.auth.len()) else { return Sent::Refused };
        let auth = Auth::clone_from_slice(&notification.to.auth);
        let Ok(body) = encrypt(notification.payload.as_bytes().to_vec(), &key, &auth) else { return Sent::Refused };
        let authorization = self.vapid.authorization(&url.origin().ascii_serialization(), now);
        let request = self
            .outward
            .post(url)
            .header("authorization", authorization)
            .header("content-encoding", "aes128gcm")
            .header("content-type", "application/octet-stream")
            .header("ttl", notification.expires_at.since(now).as_secs())
            .header("topic", notification.topic)
            .header("urgency", if notification.is_urgent { "high" } else { "normal" })
            .body(body);
        match request.send().await {
            Ok(answer) => outcome(answer.status(), retry_after(answer.headers(), now)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_the_standard_says() {
        let of = |status: u16| outcome(StatusCode::from_u16(status).unwrap(), Some(Duration::from_secs(3)));
        assert_eq!([of(200), of(201), of(204)], [Sent::Taken; 3]);
        assert_eq!([of(404), of(410)], [Sent::Gone; 2]);
        assert_eq!([of(429), of(500), of(503)], [Sent::Later(Some(Duration::from_secs(3))); 3]);
        assert_eq!([of(301), of(400), of(401), of(403), of(413)], [Sent::Refused; 5]);
    }
}
