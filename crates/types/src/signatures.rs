//! What an owner's device signs for a machine, carried through the server unchanged. The server does not look into it; the machine does.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::changes::Isolation;
use crate::ids::{MachineId, RunId, TaskId};
use crate::permissions::Permission;
use crate::runs::Provider;
use crate::text::{Blob, json_text};
use crate::time::Timestamp;

/// What is signed, as JSON text. docs/ENCRYPTION.md has its members.
pub type SignedBody = Blob<2, 393_216>;

/// The schema of what is signed.
pub enum SignedBodyText {}

json_text!(SignedBodyText, SignedBodySchema, 2, 393_216);

/// The same for an order, whose body is short.
pub enum SignedOrderText {}

json_text!(SignedOrderText, TaskOrder, 2, 16_000);

/// What is signed: a task, or what its owner wants of it later.
#[derive(ToSchema)]
#[schema(as = SignedBody)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only the schema")]
enum SignedBodySchema {
    Task(ClearTask),
    Order(TaskOrder),
}

/// A task in the clear, as it was signed. A machine does nothing when it does not know a member: it could be a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearTask {
    pub run_id: RunId,
    pub task_id: TaskId,
    /// What people read about its run and about it: anything else that a server shows is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<String>,
    /// Its place among the tasks of its run, from 0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// As it was submitted: with its placeholders.
    pub prompt: String,
    pub provider: Provider,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Without it the task works in a directory of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Without it the machine's own configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    #[serde(default)]
    pub isolation: Isolation,
    /// The tasks whose outputs the prompt takes, in the order in which it first names their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskId>,
    /// What its worktree begins with: `HEAD` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<SignedBase>,
    /// `null`: any machine of the owner.
    pub machine_id: Option<MachineId>,
    /// 16 random bytes, base64url. The machine does nothing else under the same one.
    pub nonce: String,
    /// The signer's clock.
    pub at: Timestamp,
    /// At most seven days after `at`.
    pub expires: Timestamp,
}

/// What a worktree begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignedBase {
    /// What another task of the run has left.
    Task(TaskId),
    /// A git ref.
    Ref(String),
}

/// What the owner wants of a task that there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskOrder {
    pub action: TaskAction,
    pub task_id: TaskId,
    /// The [`digest`] of the task's `signedBody`, or of its sealed text: a server that gives another task the same id changes nothing.
    pub task_digest: String,
    /// What the agent receives. Only of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What its owner was shown of the changes that are applied or discarded, and of no other order: the [`digest`] of the diff, or that of
    /// the list of files ([`crate::changes::list_digest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// The changes are applied although a part of them could not be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// The machine that has the agent's session, or the worktree.
    pub machine_id: Option<MachineId>,
    pub nonce: String,
    pub at: Timestamp,
    pub expires: Timestamp,
}

/// The kind of a [`TaskOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskAction {
    Message,
    Apply,
    Discard,
}

/// SHA-256 of a text, base64url.
pub fn digest(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

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
    #[schema(value_type = SignedBodyText)]
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
#[schema(examples(json!({
    "signature": {"key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "sig": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-Pw"},
    "signedBody": "{\"action\":\"apply\",\"taskId\":\"01932b5e-7b1a-7c3e-8f00-000000000001\",\"taskDigest\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"seen\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\",\"machineId\":\"laptop\",\"nonce\":\"AAECAwQFBgcICQoLDA0ODw\",\"at\":\"2026-03-26T00:00:00.000Z\",\"expires\":\"2026-03-27T00:00:00.000Z\"}",
})))]
pub struct ChangesOrder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<TaskSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SignedOrderText>)]
    pub signed_body: Option<SignedBody>,
}

impl From<Signed> for ChangesOrder {
    fn from(Signed { signature, signed_body }: Signed) -> Self {
        Self { signature: Some(signature), signed_body: Some(signed_body) }
    }
}
