//! JSON objects whose fields the service does not know. They are stored as the text that arrived and never parsed
//! again.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::text::inline;

/// A JSON object of at most `MAX` bytes, kept as text. The strict reader checks requests first (duplicate keys, depth).
#[derive(Clone)]
pub struct FreeObject<const MAX: usize>(Box<RawValue>);

impl<const MAX: usize> FreeObject<MAX> {
    /// Accepts text that is known to be JSON, for example from the database.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    pub fn as_text(&self) -> &str {
        self.0.get()
    }
}

impl<const MAX: usize> fmt::Debug for FreeObject<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<object of {} bytes>", self.0.get().len())
    }
}

impl<const MAX: usize> PartialEq for FreeObject<MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl<const MAX: usize> Serialize for FreeObject<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for FreeObject<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if !raw.get().starts_with('{') {
            return Err(de::Error::custom("must be an object"));
        }
        if raw.get().len() > MAX {
            return Err(de::Error::custom(format_args!("must be at most {MAX} bytes, not {}", raw.get().len())));
        }
        Ok(Self(raw))
    }
}

impl<const MAX: usize> ToSchema for FreeObject<MAX> {
    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("FreeObject_{MAX}"))
    }
}

impl<const MAX: usize> PartialSchema for FreeObject<MAX> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Object))
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some(format!("At most {MAX} bytes of JSON.")))
            .extensions(Some(inline()))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_accepted_up_to_its_limit_in_bytes() {
        for (json, accepted) in [
            ("{}", true),
            (r#"{"a":"é"}"#, true),
            (r#"{"a":"éa"}"#, false),
            (r#"{"a":"abc"}"#, false),
            ("[]", false),
            ("null", false),
            ("1", false),
            (r#""{}""#, false),
        ] {
            assert_eq!(serde_json::from_str::<FreeObject<10>>(json).is_ok(), accepted, "{json}");
        }
    }
}
