//! A server of the operator's that receives events of voice sessions, and the signature that it verifies (Standard Webhooks 1.0:
//! HMAC-SHA256 over id, time and body, with a secret of that endpoint).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ensemble_chassis::outward::TrustedOrigins;
use hmac::{Hmac, Mac};
use reqwest::Url;
use sha2::Sha256;

/// The most endpoints. Each has a row for each thing that happened, and a loop.
const MOST: usize = 16;
/// Of the one in use, the one before, and one that is tried out.
const MOST_SECRETS: usize = 3;
const LONGEST_NAME: usize = 32;
const SECRET_PREFIX: &str = "whsec_";
/// As Standard Webhooks asks for.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// All endpoints. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoints {
    all: Arc<[Arc<Endpoint>]>,
    /// How long deliveries to an endpoint are retried before they are dropped.
    pub(crate) give_up: Duration,
}

pub(crate) struct Endpoint {
    /// In the database, in metrics and in logs, because the address may have a token in it.
    pub(crate) name: String,
    pub(crate) url: Url,
    /// Every one signs, so that the receiver can change from one to the next.
    secrets: Vec<Vec<u8>>,
}

/// Never with the text itself, which holds secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEndpoint {
    #[error("has more than {MOST} endpoints")]
    TooMany,
    #[error("has an endpoint without a name, an address and a secret")]
    Incomplete,
    #[error("has an endpoint whose name is not 1 to {LONGEST_NAME} of a-z 0-9 -")]
    Name,
    #[error("has a name twice")]
    Repeated,
    #[error("has an address that is not https with a public name, and is not of VOICE_WEBHOOK_TRUSTED_ORIGINS")]
    Address,
    #[error("has a secret that is not whsec_ and 24 to 64 bytes in base64")]
    Secret,
    #[error("has an endpoint with more than {MOST_SECRETS} secrets")]
    TooManySecrets,
}

impl Endpoints {
    /// One endpoint on each line, or between semicolons: `name address secret`, and other secrets while they are being replaced.
    pub(crate) fn read(text: &str, trusted: &TrustedOrigins, give_up: Duration) -> Result<Self, BadEndpoint> {
        let lines = text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut all: Vec<Arc<Endpoint>> = Vec::new();
        for line in lines {
            let endpoint = Endpoint::read(line, trusted)?;
            if all.iter().any(|other| other.name == endpoint.name) {
                return Err(BadEndpoint::Repeated);
            }
            all.push(Arc::new(endpoint));
        }
        if all.len() > MOST { Err(BadEndpoint::TooMany) } else { Ok(Self { all: all.into(), give_up }) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.all.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Endpoint {
    fn read(line: &str, trusted: &TrustedOrigins) -> Result<Self, BadEndpoint> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(address)) = (words.next(), words.next()) else { return Err(BadEndpoint::Incomplete) };
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.len() > LONGEST_NAME || !name.bytes().all(good) {
            return Err(BadEndpoint::Name);
        }
        let url = Url::parse(address).map_err(|_| BadEndpoint::Address)?;
        if !trusted.allow(&url) {
            return Err(BadEndpoint::Address);
        }
        let secrets = words.map(secret).collect::<Result<Vec<_>, _>>()?;
        match secrets.len() {
            0 => Err(BadEndpoint::Incomplete),
            1..=MOST_SECRETS => Ok(Self { name: name.to_owned(), url, secrets }),
            _ => Err(BadEndpoint::TooManySecrets),
        }
    }

    /// The header `webhook-signature`: one signature by each secret.
    pub(crate) fn signature(&self, id: &str, unix_seconds: i64, body: &str) -> String {
        let signed = format!("{id}.{unix_seconds}.{body}");
        let all = self.secrets.iter().filter_map(|secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
            mac.update(signed.as_bytes());
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        });
        all.collect::<Vec<_>>().join(" ")
    }
}

fn secret(word: &str) -> Result<Vec<u8>, BadEndpoint> {
    let encoded = word.strip_prefix(SECRET_PREFIX).ok_or(BadEndpoint::Secret)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| BadEndpoint::Secret)?;
    if SECRET_BYTES.contains(&bytes.len()) { Ok(bytes) } else { Err(BadEndpoint::Secret) }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn read(text: &str) -> Result<Endpoints, BadEndpoint> {
        Endpoints::read(text, &TrustedOrigins::new(vec!["http://10.0.0.5:9000".to_owned()]), Duration::ZERO)
    }

    /// The example of the specification, whose signature others have computed.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let endpoints = read(&format!("a https://a.example/hooks {OLD}")).unwrap();
        let only = endpoints.iter().next().unwrap();
        let signature = only.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn endpoints_stand_on_lines_or_between_semicolons_and_two_secrets_sign_twice() {
        let text =
            format!("# ours\ncrm https://crm.example/in?k=1 {NEW} {OLD}\n\n log  http://10.0.0.5:9000/x {OLD} ;");
        let endpoints = read(&text).unwrap();
        let names: Vec<&str> = endpoints.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["crm", "log"]);
        let signatures: Vec<usize> =
            endpoints.iter().map(|one| one.signature("id", 1, "{}").split(' ').count()).collect();
        assert_eq!(signatures, [2, 1]);
        assert!(!format!("{endpoints:?}").contains("crm.example"), "an address may have a token in it");
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let good = |name: &str| format!("{name} https://a.example {OLD}");
        for (text, expected) in [
            ("a".to_owned(), BadEndpoint::Incomplete),
            ("a https://a.example".to_owned(), BadEndpoint::Incomplete),
            (good("A"), BadEndpoint::Name),
            (good(&"a".repeat(33)), BadEndpoint::Name),
            (format!("{}\n{}", good("a"), good("a")), BadEndpoint::Repeated),
            (format!("a http://a.example {OLD}"), BadEndpoint::Address),
            (format!("a https://10.0.0.5 {OLD}"), BadEndpoint::Address),
            (format!("a https://localhost/x {OLD}"), BadEndpoint::Address),
            ("a https://a.example whsec_AAAA".to_owned(), BadEndpoint::Secret),
            (format!("a https://a.example {}", OLD.trim_start_matches("whsec_")), BadEndpoint::Secret),
            (format!("a https://a.example {OLD} {OLD} {OLD} {OLD}"), BadEndpoint::TooManySecrets),
            ((0..17).map(|n| good(&format!("n{n}"))).collect::<Vec<_>>().join(";"), BadEndpoint::TooMany),
        ] {
            assert_eq!(read(&text).err(), Some(expected), "{text}");
        }
    }
}
