//! Texts with length limits: a value that was parsed is within its limits.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::extensions::{Extensions, ExtensionsBuilder};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// A text of `MIN` to `MAX` Unicode characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const MIN: usize, const MAX: usize>(String);

/// An opaque text of `MIN` to `MAX` bytes in UTF-8: ciphertext, wrapped keys. Never parsed, trimmed or logged;
/// `Debug` prints its length only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Blob<const MIN: usize, const MAX: usize>(String);

/// The text is shorter or longer than its type allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {min} to {max} {unit}, not {found}")]
pub struct OutOfBounds {
    min: usize,
    max: usize,
    unit: &'static str,
    found: usize,
}

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    pub fn new(text: impl Into<String>) -> Result<Self, OutOfBounds> {
        let text = text.into();
        // A text never has more characters than bytes, so most texts need no counting.
        let found = if text.len() < MIN || text.len() > MAX || MIN > 1 { text.chars().count() } else { text.len() };
        if (MIN..=MAX).contains(&found) {
            Ok(Self(text))
        } else {
            Err(OutOfBounds { min: MIN, max: MAX, unit: "characters", found })
        }
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> Blob<MIN, MAX> {
    pub fn new(text: impl Into<String>) -> Result<Self, OutOfBounds> {
        let text = text.into();
        if (MIN..=MAX).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(OutOfBounds { min: MIN, max: MAX, unit: "bytes", found: text.len() })
        }
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Debug for Text<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Debug for Blob<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

macro_rules! as_text {
    ($name:ident, $unit:literal) => {
        impl<const MIN: usize, const MAX: usize> Deref for $name<MIN, MAX> {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl<const MIN: usize, const MAX: usize> AsRef<str> for $name<MIN, MAX> {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<const MIN: usize, const MAX: usize> Serialize for $name<MIN, MAX> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for $name<MIN, MAX> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text).map_err(de::Error::custom)
            }
        }

        impl<const MIN: usize, const MAX: usize> ToSchema for $name<MIN, MAX> {
            fn name() -> Cow<'static, str> {
                Cow::Owned(format!("{}_{MIN}_{MAX}", stringify!($name)))
            }
        }

        impl<const MIN: usize, const MAX: usize> PartialSchema for $name<MIN, MAX> {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(SchemaType::Type(Type::String))
                    .min_length((MIN > 0).then_some(MIN))
                    .max_length(Some(MAX))
                    .description(Some(concat!("Counted in ", $unit, ".")))
                    .extensions(Some(inline()))
                    .into()
            }
        }
    };
}

/// The document has the schema of a limit in each member and not by a name of its own.
pub(crate) fn inline() -> Extensions {
    ExtensionsBuilder::new().add("x-inline", true).build()
}

/// Makes a type the schema of a text of `MIN` to `MAX` bytes that holds JSON of another type.
macro_rules! json_text {
    ($name:ident, $content:ty, $min:literal, $max:literal) => {
        impl utoipa::ToSchema for $name {
            fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
                schemas.push((
                    <$content as utoipa::ToSchema>::name().into_owned(),
                    <$content as utoipa::PartialSchema>::schema(),
                ));
                <$content as utoipa::ToSchema>::schemas(schemas);
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let mut marks = $crate::text::inline();
                marks.insert("x-content-schema".to_owned(), <$content as utoipa::ToSchema>::name().into());
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::SchemaType::Type(utoipa::openapi::Type::String))
                    .min_length(Some($min))
                    .max_length(Some($max))
                    .extensions(Some(marks))
                    .into()
            }
        }
    };
}
pub(crate) use json_text;

as_text!(Text, "characters");
as_text!(Blob, "bytes of UTF-8");

#[cfg(test)]
mod tests {
    use super::*;

    /// A value is accepted in code and from JSON, or refused in both.
    fn accepts<T>(new: fn(String) -> Result<T, OutOfBounds>, text: &str) -> bool
    where
        T: serde::de::DeserializeOwned,
    {
        let parsed = serde_json::from_value::<T>(text.into()).is_ok();
        assert_eq!(new(text.to_owned()).is_ok(), parsed, "{} characters", text.chars().count());
        parsed
    }

    #[test]
    fn lengths_at_and_beyond_each_limit() {
        // One character of each UTF-8 length. `Text` counts characters, `Blob` counts bytes.
        for (unit, bytes) in [("a", 1), ("ä", 2), ("€", 3), ("😀", 4)] {
            for (length, in_text, in_optional, in_range) in [
                (0, false, true, false),
                (1, true, true, false),
                (2, true, true, true),
                (127, true, true, true),
                (128, true, true, true),
                (129, false, false, false),
            ] {
                let text = unit.repeat(length);
                assert_eq!(accepts(Text::<1, 128>::new, &text), in_text, "Text<1, 128> with {length} times {unit}");
                assert_eq!(accepts(Text::<0, 128>::new, &text), in_optional, "Text<0, 128> with {length} times {unit}");
                assert_eq!(accepts(Text::<2, 128>::new, &text), in_range, "Text<2, 128> with {length} times {unit}");
                let fits = (1..=128).contains(&(length * bytes));
                assert_eq!(accepts(Blob::<1, 128>::new, &text), fits, "Blob<1, 128> with {length} times {unit}");
            }
        }
    }

    #[test]
    fn an_error_names_the_limits_and_the_length() {
        assert_eq!(Text::<1, 3>::new("äöüß").unwrap_err().to_string(), "must be 1 to 3 characters, not 4");
        assert_eq!(Blob::<1, 3>::new("äöü").unwrap_err().to_string(), "must be 1 to 3 bytes, not 6");
    }

    #[test]
    fn a_blob_does_not_print_itself() {
        assert_eq!(format!("{:?}", Blob::<1, 9>::new("secret").unwrap()), "<6 bytes>");
    }
}
