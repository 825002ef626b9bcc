//! Tasks that are live sessions, or begin one.

use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::text::{Blob, inline};

/// What its machine does with a sealed task, sealed for that machine: HPKE, base64url. docs/ENCRYPTION.md has its format.
pub type SealedTask = Blob<1, 65_536>;

/// The schema of the prompt of a task, which needs it or `sealed`.
pub enum PromptText {}

impl ToSchema for PromptText {}

impl PartialSchema for PromptText {
    fn schema() -> RefOr<Schema> {
        let mut marks = inline();
        marks.insert("x-or".to_owned(), "sealed".into());
        let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(65_536));
        text.description(Some("Counted in characters.")).extensions(Some(marks)).into()
    }
}

/// How a task is a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskSession {
    /// `true`: the task is the first turn of a session.
    Turn,
    /// `"start"`: the task begins a session, and is completed when there is one. The session lives by itself.
    Start,
}

impl TaskSession {
    pub const ALL: [Self; 2] = [Self::Turn, Self::Start];

    /// The name in a database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Start => "start",
        }
    }
}

impl Serialize for TaskSession {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Turn => serializer.serialize_bool(true),
            Self::Start => serializer.serialize_str("start"),
        }
    }
}

impl<'de> Deserialize<'de> for TaskSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "true or \"start\"";
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Said {
            Flag(bool),
            Word(String),
        }
        match Said::deserialize(deserializer)? {
            Said::Flag(true) => Ok(Self::Turn),
            Said::Word(word) if word == "start" => Ok(Self::Start),
            Said::Flag(flag) => Err(de::Error::invalid_value(Unexpected::Bool(flag), &EXPECTED)),
            Said::Word(word) => Err(de::Error::invalid_value(Unexpected::Str(&word), &EXPECTED)),
        }
    }
}

impl ToSchema for TaskSession {}

impl PartialSchema for TaskSession {
    fn schema() -> RefOr<Schema> {
        let flag = ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true]));
        let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["start"]));
        OneOfBuilder::new()
            .item(flag)
            .item(word)
            .description(Some(
                "true: the task is the first turn of a live session. start: the task begins a session, and is completed when there is \
                 one.",
            ))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_true_or_start() {
        let read = |text: &str| serde_json::from_str::<TaskSession>(text).ok();
        for (text, session) in [("true", TaskSession::Turn), ("\"start\"", TaskSession::Start)] {
            assert_eq!(read(text), Some(session));
            assert_eq!(serde_json::to_string(&session).unwrap(), text);
        }
        for bad in ["false", "\"true\"", "\"turn\"", "1", "null", "{}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
