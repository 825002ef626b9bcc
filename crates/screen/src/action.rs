//! What the person at the screen wants. The caller signs it and sends it.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::{Answer, Content, Control, Prompt, Resume, SetMode, SetModel, TakeBack};
use ensemble_protocol::transcript::words::{Mode, When};

/// A wish of the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Prompt {
        text: String,
        /// In the turn that runs. Only where the agent can be steered.
        now: bool,
    },
    /// An answer to a permission request (`option_id`) or to a question (`answers`; without any, the person does not answer).
    Answer {
        request_id: String,
        digest: String,
        option_id: Option<String>,
        answers: Option<BTreeMap<String, Vec<String>>>,
        /// For the agent.
        message: Option<String>,
    },
    Interrupt,
    /// A prompt that waits is not to be done.
    TakeBack(TakeBack),
    /// Ends the agent.
    Stop,
    SetMode {
        mode: Mode,
        /// The mode that the person saw.
        seen: Mode,
    },
    /// A model, by its id in `state.models`.
    SetModel(String),
    /// Starts the agent of an ended session again.
    Resume,
    /// Closes the screen. The session continues.
    Leave,
}

impl Action {
    /// What is signed and sent for it, where something is. `directory`: where the agent works, as the person sees it.
    pub fn content(self, directory: Option<String>) -> Option<Content> {
        Some(match self {
            Self::Prompt { text, now } => {
                let when = if now { When::Now } else { When::Next };
                Content::Prompt(Prompt { text, attachments: Vec::new(), when, directory })
            }
            Self::Answer { request_id, digest, option_id, answers, message } => {
                Content::Answer(Answer { request_id, digest, option_id, answers, message })
            }
            Self::Interrupt => Content::Control(Control::Interrupt),
            Self::TakeBack(prompt) => Content::Control(Control::TakeBack(prompt)),
            Self::Stop => Content::Control(Control::Stop),
            Self::Resume => Content::Control(Control::Resume(Resume { directory })),
            Self::SetMode { mode, seen } => Content::Control(Control::SetMode(SetMode { mode, seen })),
            Self::SetModel(model) => Content::Control(Control::SetModel(SetModel { model })),
            Self::Leave => return None,
        })
    }
}
