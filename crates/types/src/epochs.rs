//! The content epoch that a key was sealed in: which version of its reader's content key opens it.

use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// A content epoch of an account, from 1 on. It is a hint for the reader of a sealed key, and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ContentEpoch(u32);

/// The number is no epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number from 1 to 4294967295")]
pub struct NoEpoch;

impl ContentEpoch {
    /// # Errors
    /// It is 0.
    pub const fn new(epoch: u32) -> Result<Self, NoEpoch> {
        if epoch == 0 { Err(NoEpoch) } else { Ok(Self(epoch)) }
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl From<ContentEpoch> for i64 {
    fn from(epoch: ContentEpoch) -> Self {
        Self::from(epoch.0)
    }
}

impl TryFrom<i64> for ContentEpoch {
    type Error = NoEpoch;

    fn try_from(epoch: i64) -> Result<Self, NoEpoch> {
        Self::new(u32::try_from(epoch).map_err(|_| NoEpoch)?)
    }
}

impl<'de> Deserialize<'de> for ContentEpoch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u32::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl ToSchema for ContentEpoch {}

impl PartialSchema for ContentEpoch {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(1))
            .maximum(Some(u32::MAX))
            .description(Some("The content epoch of the reader in which the key of this object was sealed."))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_a_whole_number_from_1_on() {
        let read = |json: &str| serde_json::from_str::<ContentEpoch>(json).ok().map(ContentEpoch::get);
        assert_eq!((read("1"), read("4294967295")), (Some(1), Some(u32::MAX)));
        for bad in ["0", "-1", "4294967296", "1.5", "\"1\"", "null"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let stored = |number: i64| ContentEpoch::try_from(number).map(i64::from);
        assert_eq!(stored(7), Ok(7));
        assert_eq!((stored(0), stored(-1), stored(1 << 32)), (Err(NoEpoch), Err(NoEpoch), Err(NoEpoch)));
    }
}
