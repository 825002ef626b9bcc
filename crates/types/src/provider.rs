//! The coding agents that do tasks: three that every service knows by name, and any other that a machine offers.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The coding agent that does a task. Each name has one value, because only [`FromStr`] makes the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    Claude,
    Codex,
    Gemini,
    Other(Name),
}

/// The name of a provider other than the known ones, filled up with zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; 32]);

/// The text is not the name of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be claude, codex, gemini or another provider's name: 1 to 32 of a-z 0-9 -, and first a letter")]
pub struct InvalidProvider;

impl Provider {
    /// The known ones.
    pub const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Gemini];

    /// The name of the script that `ensemble demo` shows. No machine offers it, and it does no tasks.
    pub const DEMO: &'static str = "demo";

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Other(name) => name.as_str(),
        }
    }
}

impl Name {
    fn as_str(&self) -> &str {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }
}

impl FromStr for Provider {
    type Err = InvalidProvider;

    fn from_str(text: &str) -> Result<Self, InvalidProvider> {
        if let Some(known) = Self::ALL.into_iter().find(|known| known.as_str() == text) {
            return Ok(known);
        }
        let mut name = [0; 32];
        let is_usual = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
        if !begins || text.len() > name.len() || !text.bytes().all(is_usual) {
            return Err(InvalidProvider);
        }
        name.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        Ok(Self::Other(Name(name)))
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl ToSchema for Provider {}

impl PartialSchema for Provider {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some("^[a-z][a-z0-9-]{0,31}$"))
            .description(Some(
                "The coding agent that does a task: claude, codex, gemini, or another one that a machine of the account offers, as \
                 its newest request in the last 30 days says.",
            ))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_known_or_has_another_good_name() {
        for known in Provider::ALL {
            assert_eq!(known.as_str().parse(), Ok(known));
        }
        let longest = "x".repeat(32);
        for name in ["pi", "open-code-2", "a", "claude-2", &longest] {
            let provider: Provider = name.parse().unwrap();
            assert!(matches!(provider, Provider::Other(_)), "{provider:?}");
            assert_eq!(provider.to_string(), name);
            let json = format!("{name:?}");
            assert_eq!(serde_json::to_string(&provider).unwrap(), json);
            assert_eq!(serde_json::from_str::<Provider>(&json).unwrap(), provider);
        }
        for bad in ["", "Claude", "2a", "-a", "a b", "a,b", "a_b", "ä", "a\0", "claude ", &"x".repeat(33)] {
            assert_eq!(bad.parse::<Provider>(), Err(InvalidProvider), "{bad:?}");
            assert!(serde_json::from_value::<Provider>(bad.into()).is_err(), "{bad:?}");
        }
    }
}
