//! Invitations: one link brings one person to a server, and into one session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::UserId;
use crate::text::Blob;
use crate::time::Timestamp;

/// The id of an invitation: 128 random bits.
pub type InviteId = Blob<22, 22>;

/// An invitation to make. It names no session: its secret, which the server never has, seals that.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "admission": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "expiresAt": examples::LATER,
})))]
pub struct CreateInvite {
    /// SHA-256 of the admission, 32 bytes in base64url.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub admission: Blob<43, 43>,
    /// At most seven days from now.
    pub expires_at: Timestamp,
}

/// A new invitation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::created_device_link())))]
pub struct CreatedInvite {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub id: InviteId,
    pub expires_at: Timestamp,
}

/// How far an invitation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InviteState {
    Open,
    Claimed,
    Answered,
    /// Its maker ended it.
    Ended,
    Expired,
}

/// An invitation, as everyone sees who knows its id. Only the account that made it sees who has claimed it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"state": "open"})))]
pub struct Invite {
    pub state: InviteState,
    /// When it is answered: sealed with the secret of the invitation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// It makes the first account of the server, and has no claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<InviteClaim>,
}

/// An invitation of the caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"id": "AAECAwQFBgcICQoLDA0ODw", "state": "open", "expiresAt": examples::LATER})))]
pub struct OwnInvite {
    pub id: String,
    pub state: InviteState,
    /// When it can be claimed no more, or answered no more.
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<InviteClaim>,
}

/// The caller's invitations, the newest first. Those that have ended stay for an hour, answered ones for a week.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"invites": []})))]
pub struct Invites {
    pub invites: Vec<OwnInvite>,
}

/// Claims an invitation for the caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "name": "Bob",
    "version": 1,
    "digest": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "mac": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "signature": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw",
})))]
pub struct ClaimInvite {
    /// What the guest is called, 1 to 64 bytes.
    #[schema(value_type = String, min_length = 1, max_length = 64)]
    pub name: Blob<1, 64>,
    /// Of the guest's newest device list.
    #[schema(minimum = 1)]
    pub version: u32,
    /// SHA-256 of the body of that version.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub digest: Blob<43, 43>,
    /// HMAC-SHA256 with a key that is derived from the secret of the invitation. Only the devices of its maker can check it.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub mac: Blob<43, 43>,
    /// Ed25519 by the guest's device key over the same text.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{86}$")]
    pub signature: Blob<86, 86>,
}

/// A claim with what the server knows of who made it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteClaim {
    #[serde(flatten)]
    pub claim: ClaimInvite,
    pub user_id: UserId,
    /// The public key of the guest's account.
    pub account: String,
    /// The public key of the guest's device, which has signed the claim.
    pub key: String,
}

/// Answers a claim.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"answer": "AAECAwQFBgcICQoLDA0ODw"})))]
pub struct AnswerInvite {
    /// Sealed with the secret of the invitation.
    pub answer: Blob<1, 8_192>,
}

/// What lets a sign-in make an account where that needs an invitation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({
    "id": "AAECAwQFBgcICQoLDA0ODw",
    "admission": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
})))]
pub struct Admission {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{22}$")]
    pub id: InviteId,
    /// Derived from the secret of the invitation, 32 bytes in base64url.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub admission: Blob<43, 43>,
}
