//! What a person's client sends to the host: prompts, answers and controls.

use std::collections::BTreeMap;

use ensemble_types::ids::UserId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::transcript::words::{May, Mode, When};

/// Something for the agent to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub text: String,
    /// Inline, at most 512 KiB together as they are encoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    pub when: When,
    /// `state.directory` as it was shown to the person. The host does nothing in another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// The agent is to begin again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// As in [`Prompt::directory`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// An image or a text file that comes with a prompt: ACP's `ContentBlock` (agentclientprotocol.com, "Content").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Attachment {
    #[serde(rename_all = "camelCase")]
    Image {
        /// As in `image/png`.
        mime_type: String,
        /// Base64 (RFC 4648, section 4).
        data: String,
    },
    Resource {
        resource: Resource,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Newer,
}

/// The text of a file: ACP's `TextResourceContents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The name of the file, as in `file:///notes.txt`.
    pub uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    pub text: String,
}

impl Attachment {
    /// How many bytes it adds to a prompt.
    pub fn size(&self) -> usize {
        match self {
            Self::Image { mime_type, data } => mime_type.len() + data.len(),
            Self::Resource { resource } => resource.uri.len() + resource.text.len(),
            Self::Newer => 0,
        }
    }
}

/// The answer to a permission request (`option_id`) or to a question (`answers`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub request_id: String,
    /// SHA-256 (base64url) of the body of the request that was shown. The host acts only when it is that of its own message.
    pub digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// The texts for each question, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<BTreeMap<String, Vec<String>>>,
    /// For the agent, where it can take one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A new mode, and the mode that the person saw when choosing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetMode {
    pub mode: Mode,
    pub seen: Mode,
}

/// A new model, by its id in `state.models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetModel {
    pub model: String,
}

/// A prompt that waits, which is not to be done: its `localId` and the key that has signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeBack {
    pub local_id: String,
    /// Two devices may use one `localId`.
    pub key: String,
}

/// What a person may command, as the owner has signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessGrant {
    pub user: UserId,
    /// SHA-256 (base64url) of that person's account key as the owner's client has pinned it.
    pub account: String,
    pub may: May,
    /// The highest for a user counts.
    pub version: u64,
    /// The person has no share of the session any more, and the machine writes nothing more under the keys that they have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The newest epoch of the session's keys that the signer knew when it took the share away. A server may have kept that key from the
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_epoch: Option<u32>,
    /// The device key that has signed it. The machine says so in its state; a command says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A command that is no prompt and no answer. On the wire `action` and `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Interrupt,
    SetMode(SetMode),
    SetModel(SetModel),
    Stop,
    Resume(Resume),
    Access(AccessGrant),
    TakeBack(TakeBack),
    /// An action that this version does not know. It is answered with `unsupported`.
    Newer(Box<str>),
}

#[derive(Serialize, Deserialize)]
pub(super) struct ControlWire {
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

impl Control {
    /// The word in `action`.
    pub fn action(&self) -> &str {
        match self {
            Self::Interrupt => "interrupt",
            Self::SetMode(_) => "set_mode",
            Self::SetModel(_) => "set_model",
            Self::Stop => "stop",
            Self::Resume(_) => "resume",
            Self::Access(_) => "access",
            Self::TakeBack(_) => "take_back",
            Self::Newer(action) => action,
        }
    }

    pub(super) fn to_wire(&self) -> ControlWire {
        let value = match self {
            Self::SetMode(set) => Some(json!(set)),
            Self::SetModel(set) => Some(json!(set)),
            Self::Access(grant) => Some(json!(grant)),
            Self::TakeBack(prompt) => Some(json!(prompt)),
            Self::Resume(resume) if resume.directory.is_some() => Some(json!(resume)),
            _ => None,
        };
        ControlWire { action: self.action().to_owned(), value }
    }

    pub(super) fn of_wire(wire: ControlWire) -> serde_json::Result<Self> {
        let value = wire.value.unwrap_or_default();
        Ok(match wire.action.as_str() {
            "interrupt" => Self::Interrupt,
            "set_mode" => Self::SetMode(serde_json::from_value(value)?),
            "set_model" => Self::SetModel(serde_json::from_value(value)?),
            "stop" => Self::Stop,
            "resume" if value.is_null() => Self::Resume(Resume::default()),
            "resume" => Self::Resume(serde_json::from_value(value)?),
            "access" => Self::Access(serde_json::from_value(value)?),
            "take_back" => Self::TakeBack(serde_json::from_value(value)?),
            other => Self::Newer(other.into()),
        })
    }
}
