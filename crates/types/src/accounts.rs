//! Accounts: signing in, what is known of a user, and machine tokens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::{MachineId, TokenId, UserId};
use crate::invites::Admission;
use crate::text::{Blob, Text};
use crate::time::Timestamp;

/// Random bytes for the client to sign. A challenge can be used once, within 60 seconds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "challenge": "wX3l0hJ8pQ",
    "expiresAt": "2026-03-26T00:00:00.000Z",
    "publicOrigins": ["https://ensemble.example.com"],
})))]
pub struct Challenge {
    pub challenge: String,
    pub expires_at: Timestamp,
    /// The origins that a sign-in may be for, so that a client that called another one can say which it may call.
    #[serde(default)]
    pub public_origins: Vec<String>,
}

/// The proof that the caller holds the key of a device, or of an account without a device list. Keys and signatures are base64 or base64url, padded or not.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "publicKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "challenge": "wX3l0hJ8pQ",
    "signature": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw",
    "origin": "https://ensemble.example.com",
})))]
pub struct SignIn {
    /// The device's Ed25519 public key, 32 bytes.
    #[schema(value_type = String, pattern = "^([A-Za-z0-9+/]{42}|[A-Za-z0-9_-]{42})[AEIMQUYcgkosw048]=?$")]
    pub public_key: Blob<1, 128>,
    /// The challenge as it was received.
    pub challenge: Blob<1, 256>,
    /// Ed25519 over `ensemble-auth-v1\n<origin>\n<publicKey, base64url>\n<challenge as received>`.
    #[schema(value_type = String, pattern = "^([A-Za-z0-9+/]{85}|[A-Za-z0-9_-]{85})[AQgw](==)?$")]
    pub signature: Blob<1, 256>,
    /// Scheme, host and port as the client dialled them.
    pub origin: Text<1, 512>,
    /// `false`: a key that no account has is 404 USER_NOT_FOUND. Absent or `true`: it makes an account.
    #[serde(default = "yes")]
    pub create: bool,
    /// Where a new account needs an invitation (`REGISTRATION=invite`): what is derived from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invite: Option<Admission>,
}

const fn yes() -> bool {
    true
}

/// A user token and the id of its user.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "success": true,
    "token": "eyJhbGciOiJFZERTQSJ9.e30.c2ln",
    "userId": "01932b5e-7b1a-7c3e-8f00-000000000002",
    "expiresAt": "2026-03-26T00:00:00.000Z",
})))]
pub struct SignedIn {
    pub success: bool,
    /// A JWT. A secret.
    pub token: String,
    pub user_id: UserId,
    pub expires_at: Timestamp,
}

/// The caller's own account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::account())))]
pub struct Account {
    pub id: UserId,
    pub public_key: String,
    /// The X25519 key to which others seal session keys, of an account without a device list. Absent until the user sets it. An
    /// account with a list has its key there (`GET /v1/users/{id}/devices`), and this one counts no more.
    pub content_public_key: Option<String>,
    pub content_public_key_signature: Option<String>,
    pub display_name: Option<String>,
    /// What the clients of one person share, sealed by them.
    #[serde(default)]
    pub client_state: Option<String>,
    /// Rises by one with each change of `clientState`.
    #[serde(default)]
    pub client_state_version: i64,
    pub created_at: Timestamp,
}

/// What to change in the caller's own account. A content key must come with its signature.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"displayName": "Ada"})))]
pub struct UpdateAccount {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<0, 128>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^([A-Za-z0-9+/]{42}|[A-Za-z0-9_-]{42})[AEIMQUYcgkosw048]=?$")]
    pub content_public_key: Option<Blob<1, 128>>,
    /// The account key's signature over `ensemble-content-key-v1\n<key, base64url>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^([A-Za-z0-9+/]{85}|[A-Za-z0-9_-]{85})[AQgw](==)?$")]
    pub content_public_key_signature: Option<Blob<1, 256>>,
    /// Needs `expectedVersion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_state: Option<Blob<1, 65_536>>,
    /// The `clientStateVersion` that is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expected_version: Option<i64>,
}

/// What any signed-in caller can read about a user. Verify the signature before you seal anything to the content key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::public_user())))]
pub struct PublicUser {
    pub id: UserId,
    pub public_key: String,
    /// Of an account without a device list. One with a list has its key there: `GET /v1/users/{id}/devices`.
    pub content_public_key: Option<String>,
    pub content_public_key_signature: Option<String>,
    pub display_name: Option<String>,
}

/// Requests a token that can only act as the runner of one machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"machineId": "laptop", "expiresInSeconds": 2592000})))]
pub struct CreateMachineToken {
    pub machine_id: MachineId,
    /// 60 to 7,776,000; the default is 90 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 7_776_000)]
    pub expires_in_seconds: Option<u32>,
}

/// A machine token. The service shows it only in this response.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::created_machine_token())))]
pub struct CreatedMachineToken {
    pub id: TokenId,
    /// A JWT. A secret.
    pub token: String,
    pub machine_id: MachineId,
    pub expires_at: Timestamp,
}

/// A machine token, without the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineToken {
    pub id: TokenId,
    pub machine_id: MachineId,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A page of machine tokens, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"tokens": [examples::machine_token()], "nextCursor": null})))]
pub struct MachineTokenPage {
    pub tokens: Vec<MachineToken>,
    pub next_cursor: Option<String>,
}

/// The keys that tokens are verified with (RFC 7517, RFC 8037).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!(examples::jwks())))]
pub struct Jwks {
    pub keys: Vec<Jwk>,
}

/// One public key. A key is published before it signs its first token, and until its last token has expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Jwk {
    /// `OKP`
    pub kty: String,
    /// `Ed25519`
    pub crv: String,
    /// `sig`
    #[serde(rename = "use")]
    pub usage: String,
    /// `EdDSA`
    pub alg: String,
    /// Its thumbprint (RFC 7638).
    pub kid: String,
    /// The key, base64url without padding.
    pub x: String,
}
