//! What an owner's device signs for a machine, carried through the server unchanged. The server does not look into it; the machine does.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Blob;

/// What is signed, as JSON text. docs/ENCRYPTION.md has its members.
pub type SignedBody = Blob<2, 393_216>;

/// A device's signature of a [`SignedBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSignature {
    /// The signer's public key: Ed25519, base64url.
    pub key: Blob<1, 64>,
    /// Ed25519, base64url.
    pub sig: Blob<1, 128>,
}

/// Something that is signed, with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signed {
    pub signature: TaskSignature,
    pub signed_body: SignedBody,
}

impl Signed {
    /// Both parts, or neither: one without the other says nothing.
    pub fn of(signature: Option<TaskSignature>, signed_body: Option<SignedBody>) -> Result<Option<Self>, OnlyOne> {
        match (signature, signed_body) {
            (Some(signature), Some(signed_body)) => Ok(Some(Self { signature, signed_body })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(OnlyOne { lacks: "signedBody" }),
            (None, Some(_)) => Err(OnlyOne { lacks: "signature" }),
        }
    }
}

/// A signature without what it signs, or the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be given: a signature and what it signs come together")]
pub struct OnlyOne {
    /// The field that is missing.
    pub lacks: &'static str,
}

/// An order about the changes of a task. It is empty where the machine takes orders that are not signed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangesOrder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<TaskSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_body: Option<SignedBody>,
}

impl From<Signed> for ChangesOrder {
    fn from(Signed { signature, signed_body }: Signed) -> Self {
        Self { signature: Some(signature), signed_body: Some(signed_body) }
    }
}
