//! One type for each kind of id, so that a session id cannot be passed where a run id is expected.
//!
//! Ids on the wire are opaque strings of at most 64 characters. Ours are UUIDs of version 7 (RFC 9562, section 5.7):
//! they sort by creation time, which keeps index pages warm. Only the canonical lowercase form with hyphens is
//! accepted, so that one resource has one address.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};
use uuid::{Uuid, Variant};

/// The text is not an id of this kind, and the form that was expected. A caller of the interface only sees "not found".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct MalformedId(&'static str);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $called:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates an id that sorts after all ids that this process created before.
            pub fn generate() -> Self {
                Self(new_v7())
            }

            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// Whether it is one that sorts by its time (RFC 9562, section 5.7).
            pub fn is_version_7(self) -> bool {
                self.0.get_version_num() == 7 && self.0.get_variant() == Variant::RFC4122
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = Uuid::encode_buffer();
                f.write_str(self.0.hyphenated().encode_lower(&mut buffer))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;

            fn from_str(text: &str) -> Result<Self, MalformedId> {
                parse_canonical(text).map(Self).ok_or(MalformedId(concat!(
                    $called,
                    ": 36 characters of 0-9 a-f and -, as in 01890a5d-ac96-774b-bcce-b302099a8057"
                )))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut buffer = Uuid::encode_buffer();
                serializer.serialize_str(self.0.hyphenated().encode_lower(&mut buffer))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(|_| de::Error::custom("must be an id in the form in which this service writes it"))
            }
        }

        impl ToSchema for $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                opaque_id_schema()
            }
        }
    };
}

id!(/** An account. */ UserId, "a user's id");
id!(/** A session of a user on a machine, with its message history. */ SessionId, "a session's id");
id!(/** One message of a session. */ MessageId, "a message's id");
id!(/** An orchestrator run. */ RunId, "a run's id");
id!(/** One task of a run. */ TaskId, "a task's id");
id!(/** A runner's hold on one attempt of a task. */ LeaseId, "a lease's id");
id!(/** A look at a machine. */ LookId, "the id of a look");
id!(/** An order to a runner about the changes of a task. */ OrderId, "an order's id");
id!(/** A device of an account. */ DeviceId, "a device's id");
id!(/** The `jti` of an access token (RFC 7519, section 4.1.7). */ TokenId, "a token's id");
id!(/** A voice session of the gateway. */ GatewaySessionId, "a voice session's id");

/// A machine's id, chosen by its client: 1 to 64 of `A-Z a-z 0-9 _ -`. Unique within one account only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(Box<str>);

impl MachineId {
    /// Creates an id for a client that did not choose one.
    pub fn generate() -> Self {
        Self(new_v7().to_string().into_boxed_str())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MachineId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let fits =
            (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits { Ok(Self(text.into())) } else { Err(MalformedId("a machine's id: 1 to 64 of A-Z a-z 0-9 _ -")) }
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineId({})", self.0)
    }
}

impl Serialize for MachineId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MachineId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::custom("must be 1 to 64 characters of A-Z a-z 0-9 _ -"))
    }
}

impl ToSchema for MachineId {}

impl PartialSchema for MachineId {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).pattern(Some("^[A-Za-z0-9_-]{1,64}$")).into()
    }
}

fn opaque_id_schema() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .pattern(Some("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"))
        .into()
}

/// An id of something that has no type of its own.
pub fn unique() -> Uuid {
    new_v7()
}

#[expect(clippy::disallowed_methods, reason = "the only place that creates ids")]
fn new_v7() -> Uuid {
    Uuid::now_v7()
}

fn parse_canonical(text: &str) -> Option<Uuid> {
    let canonical = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
    if !canonical {
        return None;
    }
    Uuid::try_parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_resource_has_one_address() {
        let id = SessionId::generate();
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        for other in [
            id.to_string().to_uppercase(),
            id.uuid().simple().to_string(),
            format!("{{{id}}}"),
            format!("urn:uuid:{id}"),
            String::new(),
        ] {
            let error = other.parse::<SessionId>().unwrap_err().to_string();
            assert!(error.starts_with("must be a session's id: 36 characters"), "{error}");
        }
    }

    #[test]
    fn machine_ids_keep_to_their_alphabet() {
        assert!("my-laptop_2".parse::<MachineId>().is_ok());
        for bad in ["", "a b", "ä", "a/b", "..", &"x".repeat(65)] {
            assert!(bad.parse::<MachineId>().is_err(), "{bad}");
        }
    }
}
