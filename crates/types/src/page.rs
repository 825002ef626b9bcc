//! Paging: the page size and the cursor of the last page.

use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// The number of items on a page: 1 to `MAX`, or `DEFAULT` when the query does not set it. A value out of range is an
/// error. It is not replaced by another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limit<const DEFAULT: u32, const MAX: u32>(u32);

impl<const DEFAULT: u32, const MAX: u32> Limit<DEFAULT, MAX> {
    pub fn new(limit: u32) -> Option<Self> {
        (1..=MAX).contains(&limit).then_some(Self(limit))
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const DEFAULT: u32, const MAX: u32> Default for Limit<DEFAULT, MAX> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<'de, const DEFAULT: u32, const MAX: u32> Deserialize<'de> for Limit<DEFAULT, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Depending on how the query is parsed, the value arrives as text or as a number.
        struct Number<const MAX: u32>;
        impl<const MAX: u32> de::Visitor<'_> for Number<MAX> {
            type Value = u32;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a whole number from 1 to {MAX}")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<u32, E> {
                u32::try_from(value)
                    .ok()
                    .filter(|v| (1..=MAX).contains(v))
                    .ok_or_else(|| E::custom(format_args!("must be a whole number from 1 to {MAX}")))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<u32, E> {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                let number = if digits { value.parse().unwrap_or(u64::MAX) } else { u64::MAX };
                self.visit_u64(number)
            }
        }
        deserializer.deserialize_u32(Number::<MAX>).map(Self)
    }
}

impl<const DEFAULT: u32, const MAX: u32> ToSchema for Limit<DEFAULT, MAX> {}

impl<const DEFAULT: u32, const MAX: u32> PartialSchema for Limit<DEFAULT, MAX> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(1))
            .maximum(Some(MAX))
            .default(Some(serde_json::Value::from(DEFAULT)))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;

    use super::*;

    #[test]
    fn limits_are_whole_numbers_up_to_the_maximum() {
        type Page = Limit<50, 500>;
        assert_eq!(Page::default().get(), 50);
        for (query, wanted) in [
            ("1", Some(1)),
            ("500", Some(500)),
            ("0", None),
            ("501", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
            (" 1", None),
            ("99999999999999999999", None),
        ] {
            let parsed: Result<Page, de::value::Error> = Page::deserialize(query.into_deserializer());
            assert_eq!(parsed.ok().map(Page::get), wanted, "{query:?}");
        }
    }
}
