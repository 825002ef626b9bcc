//! What the person at the screen wants. The caller signs it and sends it.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::words::Mode;

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
