//! The proof of a sign-in, and the origins that it may be for.

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::accounts::SignIn;

use super::encoding::{decode, decode_canonical};
use super::{InviteId, Origin, encode};

/// A sign-in of the right form. It is not checked yet.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The device's key, or that of an account without a device list.
    pub(crate) public_key: [u8; 32],
    /// The challenge, if it can be one of ours.
    pub(crate) challenge: Option<[u8; 32]>,
    received: String,
    signature: [u8; 64],
    origin: String,
    /// Whether a key that is not known makes an account.
    pub(crate) creates: bool,
    /// The invitation that lets it make one, and its admission, if they can be ours.
    pub(crate) invite: Option<(InviteId, [u8; 32])>,
}

/// A field of a sign-in that has the wrong form: its name on the wire, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub(crate) struct MalformedProof {
    pub(crate) field: &'static str,
    pub(crate) rule: &'static str,
}

/// The proof is not valid. It does not say which part of it, so that callers cannot learn it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proof is not valid")]
pub(crate) struct InvalidProof;

impl Proof {
    pub(crate) fn new(body: &SignIn) -> Result<Self, MalformedProof> {
        let malformed = |field, rule| MalformedProof { field, rule };
        Ok(Self {
            public_key: decode(&body.public_key).ok_or(malformed("publicKey", "must be 32 bytes in base64"))?,
            challenge: decode_canonical(&body.challenge),
            received: body.challenge.to_string(),
            signature: decode(&body.signature).ok_or(malformed("signature", "must be 64 bytes in base64"))?,
            origin: body.origin.to_string(),
            creates: body.create,
            invite: body
                .invite
                .as_ref()
                .and_then(|invite| decode_canonical(&invite.id).zip(decode_canonical(&invite.admission))),
        })
    }

    /// Whether the holder of the account's key signed this challenge for one of our origins. The check is strict: keys of
    /// small order and signatures that are not in canonical form are refused (RFC 8032, section 5.1.7).
    pub(crate) fn check(&self, ours: &[Origin]) -> Result<(), InvalidProof> {
        let origin = self.origin.parse::<Origin>().map_err(|_| InvalidProof)?;
        if !ours.contains(&origin) {
            return Err(InvalidProof);
        }
        let key = VerifyingKey::from_bytes(&self.public_key).map_err(|_| InvalidProof)?;
        let signed = format!("ensemble-auth-v1\n{}\n{}\n{}", self.origin, encode(&self.public_key), self.received);
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&self.signature)).map_err(|_| InvalidProof)
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};
    use ensemble_types::text::Text;

    use super::*;

    const CHALLENGE: [u8; 32] = [5; 32];

    /// A sign-in at `origin` whose signature is over `signed_origin`.
    fn sign_in(key: &SigningKey, origin: &str, signed_origin: &str) -> SignIn {
        let (public_key, challenge) = (encode(key.verifying_key().as_bytes()), encode(&CHALLENGE));
        let signed = format!("ensemble-auth-v1\n{signed_origin}\n{public_key}\n{challenge}");
        SignIn {
            signature: blob(&encode(&key.sign(signed.as_bytes()).to_bytes())),
            public_key: blob(&public_key),
            challenge: blob(&challenge),
            origin: Text::new(origin).unwrap(),
            invite: None,
            create: true,
        }
    }

    fn blob<const MAX: usize>(text: &str) -> ensemble_types::text::Blob<1, MAX> {
        ensemble_types::text::Blob::new(text).unwrap()
    }

    fn ours() -> [Origin; 2] {
        ["https://a.example", "http://127.0.0.1:8080"].map(|text| text.parse().unwrap())
    }

    #[test]
    fn a_proof_is_for_one_of_our_origins() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let check = |origin, signed| Proof::new(&sign_in(&key, origin, signed)).unwrap().check(&ours());
        for origin in ["https://a.example", "http://127.0.0.1:8080", "https://A.example:443"] {
            assert_eq!(check(origin, origin), Ok(()), "{origin}");
        }
        for origin in ["https://b.example", "http://a.example", "https://a.example:444", "nonsense"] {
            assert_eq!(check(origin, origin), Err(InvalidProof), "{origin}");
        }
        assert_eq!(check("https://a.example", "https://b.example"), Err(InvalidProof), "signed for another server");
    }

    #[test]
    fn a_proof_is_by_the_accounts_key_over_the_challenge() {
        let (key, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let good = || sign_in(&key, "https://a.example", "https://a.example");
        let check = |body: SignIn| Proof::new(&body).unwrap().check(&ours());
        assert_eq!(check(good()), Ok(()));
        let another_key = blob(&encode(other.verifying_key().as_bytes()));
        assert_eq!(check(SignIn { public_key: another_key, ..good() }), Err(InvalidProof));
        assert_eq!(check(SignIn { challenge: blob(&encode(&[6; 32])), ..good() }), Err(InvalidProof));
        // With this key and this signature a check that is not strict accepts any message.
        let (mut weak_key, mut signature) = ([0; 32], [0; 64]);
        (weak_key[0], signature[0]) = (1, 1);
        let weak = SignIn { public_key: blob(&encode(&weak_key)), signature: blob(&encode(&signature)), ..good() };
        assert_eq!(check(weak), Err(InvalidProof));
    }

    #[test]
    fn a_malformed_proof_names_its_field_and_a_malformed_challenge_is_none_of_ours() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let good = || sign_in(&key, "https://a.example", "https://a.example");
        let field = |body: SignIn| Proof::new(&body).err().map(|malformed| malformed.field);
        assert_eq!(field(SignIn { public_key: blob("AAAA"), ..good() }), Some("publicKey"));
        assert_eq!(field(SignIn { signature: blob("AAAA"), ..good() }), Some("signature"));
        assert_eq!(Proof::new(&good()).unwrap().challenge, Some(CHALLENGE));
        assert_eq!(Proof::new(&SignIn { challenge: blob("AAAA"), ..good() }).unwrap().challenge, None);
    }
}
