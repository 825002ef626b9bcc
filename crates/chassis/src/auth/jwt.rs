//! Access tokens: JWTs (RFC 7519, profile RFC 9068) signed with EdDSA (RFC 8037), verified as RFC 8725 requires.
//!
//! jsonwebtoken parses and checks; the cryptography is a provider of our own, because Ed25519 must be checked
//! strictly (`verify_strict` refuses weak keys and non-canonical signatures) and because we use no other algorithm.

use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Deserializer, Serialize};

use super::DeviceKey;

pub const ISSUER: &str = "ensemble";
pub const AUDIENCE_USER: &str = "ensemble:user";
/// Machine tokens have their own audience, so that a service never accepts one as a user's token.
pub const AUDIENCE_MACHINE: &str = "ensemble:machine";
/// So that no service takes the token of recovery words for a user's.
pub const AUDIENCE_RECOVERY: &str = "ensemble:recovery";
pub const SCOPE_USER: &str = "user";
pub const SCOPE_MACHINE: &str = "machine";
pub const SCOPE_RECOVERY: &str = "recovery";

/// RFC 9068, section 2.1.
const TOKEN_TYPE: &str = "at+jwt";
const MAX_TOKEN_BYTES: usize = 4096;

/// The claims of a token. All are required except `machineId`, which only machine tokens have, and `device`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub aud: String,
    pub sub: UserId,
    pub jti: TokenId,
    /// Seconds since 1970.
    pub iat: i64,
    /// Seconds since 1970.
    pub exp: i64,
    pub scope: String,
    #[serde(rename = "machineId", default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// The device that asked for the token. When it is removed, the token is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceKey>,
}

/// The reason why a token is refused; for logs only.
#[derive(Debug, thiserror::Error)]
pub enum BadToken {
    #[error("the token has the wrong form")]
    Form,
    #[error("the token was signed with a key that is not known")]
    UnknownKey,
    #[error("the token was not signed by this service")]
    Signature(#[source] Error),
    #[error("the token's claims contradict each other")]
    Claims,
    #[error("the token is not valid yet")]
    TooEarly,
    #[error("the token has expired")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error("the device that asked for the token was removed")]
    DeviceRemoved,
}

/// Installs our provider for the whole process. Must run before the first token is read; a second call does nothing.
pub fn install_provider() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |algorithm, key| match algorithm {
            Algorithm::EdDSA => Ok(Box::new(StrictSigner(signing_key(key)?))),
            _ => Err(ErrorKind::InvalidAlgorithm.into()),
        },
        verifier_factory: |algorithm, key| match algorithm {
            Algorithm::EdDSA => Ok(Box::new(StrictVerifier(verifying_key(key)?))),
            _ => Err(ErrorKind::InvalidAlgorithm.into()),
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    // It fails only when a provider is installed already.
    let _ = PROVIDER.install_default();
}

/// Signs claims with the key that is published as `kid`.
pub fn sign(claims: &Claims, kid: &str, key: &SigningKey) -> Result<String, Error> {
    sign_as(TOKEN_TYPE, claims, kid, key)
}

/// The same for a token of another `typ`, so that none is taken for one of the other kind (RFC 8725, section 3.11).
pub(super) fn sign_as(typ: &str, claims: &impl Serialize, kid: &str, key: &SigningKey) -> Result<String, Error> {
    let mut header = Header::new(Algorithm::EdDSA);
    header.typ = Some(typ.to_owned());
    header.kid = Some(kid.to_owned());
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(key.as_bytes()))
}

/// The `kid` of an access token that has the right form; its signature is not checked yet.
pub(super) fn key_id(token: &str) -> Result<String, BadToken> {
    key_id_as(TOKEN_TYPE, token)
}

/// The same for a token of another `typ`.
pub(super) fn key_id_as(typ: &str, token: &str) -> Result<String, BadToken> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(BadToken::Form);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| BadToken::Form)?;
    // A header that brings its own key, or that demands extensions, is refused rather than ignored (RFC 8725, 3.10).
    let brings_key = header.jku.is_some()
        || header.jwk.is_some()
        || header.x5u.is_some()
        || header.x5c.is_some()
        || header.crit.is_some();
    let is_ours = header.alg == Algorithm::EdDSA && header.typ.as_deref() == Some(typ);
    match header.kid {
        Some(kid) if is_ours && !brings_key => Ok(kid),
        _ => Err(BadToken::Form),
    }
}

/// The claims of a token that was signed by us.
#[derive(Deserialize)]
pub(super) struct Verified {
    #[serde(flatten)]
    pub(super) claims: Claims,
    /// Seconds since 1970. Our tokens have no such claim, but one that is there is obeyed (RFC 7519, section 4.1.5).
    #[serde(rename = "nbf", default, deserialize_with = "number")]
    not_before: Option<i64>,
}

impl Verified {
    /// When the token becomes valid, in seconds since 1970.
    pub(super) fn valid_from(&self) -> i64 {
        self.not_before.map_or(self.claims.iat, |not_before| not_before.max(self.claims.iat))
    }
}

/// Refuses null, which serde takes for an absent value.
fn number<'de, D: Deserializer<'de>>(claim: D) -> Result<Option<i64>, D::Error> {
    i64::deserialize(claim).map(Some)
}

/// Checks the signature and everything that does not change with time.
pub(super) fn verify(token: &str, key: &VerifyingKey) -> Result<Verified, BadToken> {
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.set_issuer(&[ISSUER]);
    rules.set_audience(&[AUDIENCE_USER, AUDIENCE_MACHINE, AUDIENCE_RECOVERY]);
    rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
    // Times are compared with the service's own clock, by the caller of this function.
    rules.validate_exp = false;
    let data = jsonwebtoken::decode::<Verified>(token, &DecodingKey::from_ed_der(key.as_bytes()), &rules)
        .map_err(BadToken::Signature)?;
    let claims = &data.claims.claims;
    let coherent = match claims.scope.as_str() {
        SCOPE_USER => claims.aud == AUDIENCE_USER && claims.machine_id.is_none(),
        SCOPE_MACHINE => claims.aud == AUDIENCE_MACHINE && claims.machine_id.is_some(),
        SCOPE_RECOVERY => claims.aud == AUDIENCE_RECOVERY && claims.machine_id.is_none() && claims.device.is_some(),
        _ => false,
    };
    if coherent && claims.iat <= claims.exp { Ok(data.claims) } else { Err(BadToken::Claims) }
}

struct StrictSigner(SigningKey);
struct StrictVerifier(VerifyingKey);

impl Signer<Vec<u8>> for StrictSigner {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, ed25519_dalek::SignatureError> {
        Ok(self.0.try_sign(message)?.to_bytes().to_vec())
    }
}

impl JwtSigner for StrictSigner {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

impl Verifier<Vec<u8>> for StrictVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), ed25519_dalek::SignatureError> {
        self.0.verify_strict(message, &Signature::from_slice(signature)?)
    }
}

impl JwtVerifier for StrictVerifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

fn signing_key(key: &EncodingKey) -> Result<SigningKey, Error> {
    let seed = key.as_bytes().try_into().map_err(|_| ErrorKind::InvalidEddsaKey)?;
    Ok(SigningKey::from_bytes(seed))
}

fn verifying_key(key: &DecodingKey) -> Result<VerifyingKey, Error> {
    let bytes = key.try_get_as_bytes()?.try_into().map_err(|_| ErrorKind::InvalidEddsaKey)?;
    VerifyingKey::from_bytes(bytes).map_err(|_| ErrorKind::InvalidEddsaKey.into())
}
