//! What is kept of a conversation: how many utterances, how long each, and for how long.

use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The newest utterances that are kept.
pub(crate) const MOST_UTTERANCES: i64 = 500;
/// Bytes of one utterance.
const UTTERANCE_MAX: usize = 4_096;
/// Characters of an error's message.
const MESSAGE_MAX: usize = 500;

/// An utterance that is to be kept.
#[derive(Clone)]
pub(crate) struct Utterance {
    pub(crate) role: String,
    pub(crate) text: String,
    pub(crate) cut: bool,
    /// The agent's id of it, by which a repetition is recognised.
    pub(crate) id: Option<String>,
}

impl Utterance {
    /// Keeps the beginning.
    pub(crate) fn new(role: String, mut text: String, id: Option<String>) -> Self {
        let cut = text.len() > UTTERANCE_MAX;
        text.truncate(text.floor_char_boundary(UTTERANCE_MAX));
        Self { role, text, cut, id }
    }
}

/// The last error that an agent reported.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastError {
    pub(crate) code: String,
    /// Until the session has ended: it may contain what was said.
    pub(crate) message: Option<String>,
    pub(crate) at: Timestamp,
}

impl LastError {
    pub(crate) fn new(code: String, message: Option<String>, at: Timestamp) -> Self {
        let message = message.map(|text| text.chars().take(MESSAGE_MAX).collect());
        Self { code, message, at }
    }
}

impl std::fmt::Debug for LastError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastError").field("code", &self.code).field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_utterance_keeps_whole_characters_of_its_beginning() {
        let short = Utterance::new("user".to_owned(), "é".repeat(2_048), None);
        assert_eq!((short.text.len(), short.cut), (4_096, false));
        let long = Utterance::new("user".to_owned(), format!("x{}", "é".repeat(2_048)), None);
        assert_eq!((long.text.len(), long.cut), (4_095, true));
    }

    #[test]
    fn an_error_is_short_and_not_shown_in_logs() {
        let error = LastError::new("llm_error".to_owned(), Some("é".repeat(600)), Timestamp::from_micros(0));
        assert_eq!(error.message.as_ref().map(|text| text.chars().count()), Some(500));
        assert!(!format!("{error:?}").contains('é'));
    }
}
