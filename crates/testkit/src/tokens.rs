//! Access tokens of every kind: valid ones, and each way in which a token can be invalid.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use ensemble_chassis::auth::{
    self as jwt, AUDIENCE_MACHINE, AUDIENCE_USER, Claims, DeviceKey, FixedKeys, ISSUER, SCOPE_MACHINE, SCOPE_USER,
    VoiceToolClaims,
};
use ensemble_chassis::{Clock, KeySet};
use ensemble_types::ids::{MachineId, TokenId, UserId};

const KID: &str = "test-1";
const HOUR: i64 = 3_600;

/// Issues tokens in place of identity.
pub struct Issuer {
    key: SigningKey,
    revoked: Mutex<Vec<TokenId>>,
    removed: Mutex<Vec<DeviceKey>>,
    keys: Arc<FixedKeys>,
}

impl Default for Issuer {
    fn default() -> Self {
        Self::new()
    }
}

impl Issuer {
    pub fn new() -> Self {
        jwt::install_provider();
        let key = random_key();
        let keys = Arc::new(FixedKeys::new(KeySet::new([(KID.to_owned(), key.verifying_key())], [])));
        Self { key, revoked: Mutex::default(), removed: Mutex::default(), keys }
    }

    /// For a service that accepts a key source.
    pub fn key_source(&self) -> Arc<FixedKeys> {
        Arc::clone(&self.keys)
    }

    /// `kid` and public key, as in identity's snapshot.
    pub fn public_key(&self) -> (String, [u8; 32]) {
        (KID.to_owned(), self.key.verifying_key().to_bytes())
    }

    pub fn revoked(&self) -> Vec<TokenId> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A user's token, valid for an hour.
    pub fn user(&self, user: UserId) -> String {
        self.sign(&claims(user))
    }

    /// A user's token with its id, so that it can be revoked.
    pub fn revocable(&self, user: UserId) -> (String, TokenId) {
        let claims = claims(user);
        (self.sign(&claims), claims.jti)
    }

    pub fn removed(&self) -> Vec<DeviceKey> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A user's token that this device asked for.
    pub fn of_device(&self, user: UserId, device: DeviceKey) -> String {
        self.sign(&Claims { device: Some(device), ..claims(user) })
    }

    pub fn revoke(&self, token: TokenId) {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.publish();
    }

    /// Removes a device from its account.
    pub fn remove(&self, device: DeviceKey) {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).push(device);
        self.publish();
    }

    fn publish(&self) {
        let keys = KeySet::new([(KID.to_owned(), self.key.verifying_key())], self.revoked());
        self.keys.replace(keys.with_removed(self.removed()));
    }

    pub fn machine(&self, user: UserId, machine: &MachineId) -> String {
        self.sign(&machine_claims(user, machine))
    }

    /// Expires after this many seconds. A negative number is in the past (the services allow 30 s of clock difference).
    pub fn expiring(&self, user: UserId, in_seconds: i64) -> String {
        let now = now();
        self.sign(&Claims { iat: now - 2 * HOUR, exp: now + in_seconds, ..claims(user) })
    }

    /// Signed with another key under our key's name.
    pub fn foreign(&self, user: UserId) -> String {
        sign(&claims(user), KID, &random_key())
    }

    pub fn sign(&self, claims: &Claims) -> String {
        sign(claims, KID, &self.key)
    }

    /// The token of a voice session's agent.
    pub fn voice_tools(&self, claims: &VoiceToolClaims) -> String {
        claims.sign(KID, &self.key).unwrap_or_else(|error| panic!("a token cannot be signed: {error}"))
    }

    /// Tokens that must all be refused with 401, each with the name of its fault.
    pub fn bad_tokens(&self, user: UserId) -> Vec<(&'static str, String)> {
        let good = claims(user);
        let header = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&good).unwrap_or_default());
        let raw = |head: &str| {
            let signed = format!("{}.{payload}", header(head));
            let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()).to_bytes());
            format!("{signed}.{signature}")
        };
        let unsigned = format!("{}.{payload}.", header(r#"{"alg":"none","typ":"at+jwt","kid":"test-1"}"#));
        let machine: MachineId = MachineId::generate();
        vec![
            ("expired", self.expiring(user, -120)),
            ("foreign signature", self.foreign(user)),
            ("alg none", unsigned),
            ("alg HS256", raw(r#"{"alg":"HS256","typ":"at+jwt","kid":"test-1"}"#)),
            ("wrong typ", raw(r#"{"alg":"EdDSA","typ":"JWT","kid":"test-1"}"#)),
            ("unknown kid", sign(&good, "test-2", &self.key)),
            ("no kid", raw(r#"{"alg":"EdDSA","typ":"at+jwt"}"#)),
            ("crit", raw(r#"{"alg":"EdDSA","typ":"at+jwt","kid":"test-1","crit":["b64"]}"#)),
            ("brings its key", raw(r#"{"alg":"EdDSA","typ":"at+jwt","kid":"test-1","jku":"http://127.0.0.1/"}"#)),
            ("wrong issuer", self.sign(&Claims { iss: "another".into(), ..good.clone() })),
            ("wrong audience", self.sign(&Claims { aud: AUDIENCE_MACHINE.into(), ..good.clone() })),
            ("wrong scope", self.sign(&Claims { scope: "root".into(), ..good.clone() })),
            ("issued in the future", self.sign(&Claims { iat: now() + HOUR, exp: now() + 2 * HOUR, ..good.clone() })),
            (
                "a machine's token that says user",
                self.sign(&Claims { scope: SCOPE_USER.into(), ..machine_claims(user, &machine) }),
            ),
            ("cut off", self.user(user).split('.').take(2).collect::<Vec<_>>().join(".")),
            ("not a token", "abc".to_owned()),
        ]
    }
}

fn claims(user: UserId) -> Claims {
    let now = now();
    Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_USER.to_owned(),
        sub: user,
        jti: TokenId::generate(),
        iat: now,
        exp: now + HOUR,
        scope: SCOPE_USER.to_owned(),
        machine_id: None,
        device: None,
    }
}

fn machine_claims(user: UserId, machine: &MachineId) -> Claims {
    Claims {
        aud: AUDIENCE_MACHINE.to_owned(),
        scope: SCOPE_MACHINE.to_owned(),
        machine_id: Some(machine.clone()),
        ..claims(user)
    }
}

fn sign(claims: &Claims, kid: &str, key: &SigningKey) -> String {
    jwt::sign(claims, kid, key).unwrap_or_else(|error| panic!("a token cannot be signed: {error}"))
}

fn random_key() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

fn now() -> i64 {
    Clock::system().now().unix_seconds()
}
