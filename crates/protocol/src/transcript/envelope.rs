//! A signed message: it proves who wrote it, and that it is unchanged.

use crate::lists::{encode, is_signed};
use ed25519_dalek::{Signer, SigningKey};
use ensemble_types::ids::{SessionId, UserId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::transcript::body::{BadBody, Message};
use crate::transcript::bounds::{MOST_BODY, MOST_SIGNED};

/// What is sealed as the content of a message in a hosted session.
///
/// It proves that the holder of `key` wrote `body` as `user` in this session. Whether `key` may speak for `user` is said by the
/// user's device list, which is not looked at here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// 1.
    pub v: u32,
    /// A [`Message`] as JSON. Signature and digest are over its bytes, so it is never encoded again.
    pub body: String,
    pub user: UserId,
    /// The signer's Ed25519 public key, base64url.
    pub key: String,
    /// Ed25519 (RFC 8032), base64url.
    pub sig: String,
}

/// Why a message is not taken for a signed one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    /// The `{"text"}` object of sessions between people, or something else.
    #[error("it is not signed")]
    Form,
    #[error("its signature is not good for this session")]
    Signature,
    #[error("it has {0} bytes, which is too long")]
    TooLong(usize),
}

impl Envelope {
    /// Signs a body for one session.
    pub fn sign(session: SessionId, user: UserId, body: String, key: &SigningKey) -> Result<Self, NotSigned> {
        if body.len() > MOST_BODY {
            return Err(NotSigned::TooLong(body.len()));
        }
        let sig = encode(&key.sign(&signed_text(session, user, &body)).to_bytes());
        Ok(Self { v: 1, body, user, key: encode(key.verifying_key().as_bytes()), sig })
    }

    /// Reads what was opened and checks its signature for this session, strictly (RFC 8032, section 5.1.7).
    pub fn open(session: SessionId, opened: &[u8]) -> Result<Self, NotSigned> {
        if opened.len() > MOST_SIGNED {
            return Err(NotSigned::TooLong(opened.len()));
        }
        let envelope: Self = serde_json::from_slice(opened).map_err(|_| NotSigned::Form)?;
        if envelope.v != 1 {
            return Err(NotSigned::Form);
        }
        if envelope.body.len() > MOST_BODY {
            return Err(NotSigned::TooLong(envelope.body.len()));
        }
        if !is_signed(&envelope.key, &signed_text(session, envelope.user, &envelope.body), &envelope.sig) {
            return Err(NotSigned::Signature);
        }
        Ok(envelope)
    }

    /// The text to seal.
    pub fn write(&self) -> Result<Vec<u8>, NotSigned> {
        let text = serde_json::to_vec(self).map_err(|_| NotSigned::Form)?;
        if text.len() > MOST_SIGNED { Err(NotSigned::TooLong(text.len())) } else { Ok(text) }
    }

    /// Reads the body.
    pub fn message(&self) -> Result<Message, BadBody> {
        Message::read(&self.body)
    }

    /// What an answer to this message names.
    pub fn digest(&self) -> String {
        digest(&self.body)
    }
}

/// SHA-256 of a body as base64url, as `answer.digest` has it.
pub fn digest(body: &str) -> String {
    encode(&Sha256::digest(body.as_bytes()))
}

/// What [`crate::transcript::body::AccessGrant::account`] names an account key by: SHA-256 of its 32 bytes, base64url.
pub fn account_digest(key: &str) -> Option<String> {
    crate::lists::decode::<32>(key).map(|key| encode(&Sha256::digest(key)))
}

/// What a signer signs: `ensemble-message-v2`, the session's id, the user's id and the body, each on a line.
pub fn signed_text(session: SessionId, user: UserId, body: &str) -> Vec<u8> {
    format!("ensemble-message-v2\n{session}\n{user}\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> (SessionId, UserId) {
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        (session, "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap())
    }

    #[test]
    fn a_message_counts_only_as_it_was_signed_and_where() {
        let (session, user) = ids();
        let key = SigningKey::from_bytes(&[7; 32]);
        let signed = Envelope::sign(session, user, "{\"v\":1}".to_owned(), &key).unwrap();
        let opened = signed.write().unwrap();
        assert_eq!(Envelope::open(session, &opened), Ok(signed.clone()));
        assert_eq!(Envelope::open(SessionId::generate(), &opened), Err(NotSigned::Signature), "another session");
        let changed = |change: fn(&mut Envelope)| {
            let mut other = signed.clone();
            change(&mut other);
            Envelope::open(session, &serde_json::to_vec(&other).unwrap())
        };
        assert_eq!(changed(|one| one.body.push(' ')), Err(NotSigned::Signature));
        assert_eq!(changed(|one| one.user = UserId::generate()), Err(NotSigned::Signature));
        let other_key =
            |one: &mut Envelope| one.key = encode(SigningKey::from_bytes(&[8; 32]).verifying_key().as_bytes());
        assert_eq!(changed(other_key), Err(NotSigned::Signature));
        assert_eq!(changed(|one| one.sig = encode(&[0; 64])), Err(NotSigned::Signature));
        assert_eq!(changed(|one| one.v = 2), Err(NotSigned::Form));
        // A key of small order would take any signature.
        assert_eq!(changed(|one| one.key = encode(&[0; 32])), Err(NotSigned::Signature));
        assert_eq!(Envelope::open(session, b"{\"text\":\"hello\"}"), Err(NotSigned::Form));
        let newer = [b"{\"later\":1,", opened.get(1..).unwrap()].concat();
        assert!(Envelope::open(session, &newer).is_ok(), "a later version may add members");
    }

    #[test]
    fn what_is_too_long_is_neither_signed_nor_read() {
        let (session, user) = ids();
        let key = SigningKey::from_bytes(&[7; 32]);
        let long = "x".repeat(MOST_BODY + 1);
        assert_eq!(Envelope::sign(session, user, long, &key), Err(NotSigned::TooLong(MOST_BODY + 1)));
        let quotes = Envelope::sign(session, user, "\"".repeat(MOST_BODY), &key).unwrap();
        assert!(matches!(quotes.write(), Err(NotSigned::TooLong(_))), "it is longer when it is written");
        assert!(matches!(Envelope::open(session, &vec![b' '; MOST_SIGNED + 1]), Err(NotSigned::TooLong(_))));
    }
}
