//! Refs: short names of runs, tasks, sessions and machines, for people to read and to type.
//!
//! A ref is computed from the id, so a server cannot give one. It has 40 bits: an id with a given ref can be searched for, so what a ref
//! leads to is still judged by what was signed.
//!
//! A ref is taken wherever an id is in a path. Everything else uses the id: answers that point to something, signatures and
//! `aad`. A ref is no secret and gives no access.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// Crockford's base 32 in lower case: no `i`, `l`, `o`, `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 8;

/// The name in front of an id whose ref is computed.
const DOMAIN: &str = "ensemble-ref-v1\n";

/// Eight characters. Unique among all sessions, and among the runs, the tasks and the machines of an account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref([u8; LENGTH]);

/// The text is neither an id nor a ref. A caller of the interface only sees "not found".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be eight characters of 0-9 and a-z without i, l, o and u")]
pub struct MalformedRef;

impl Ref {
    /// The ref of what has this id: the first 40 bits of SHA-256 of `ensemble-ref-v1`, a line feed and the id as it is written, five bits
    /// a character.
    pub fn of(id: &impl fmt::Display) -> Self {
        let digest = Sha256::digest(format!("{DOMAIN}{id}"));
        let bits = digest.iter().take(5).fold(0, |bits: u64, byte| bits << 8 | u64::from(*byte));
        Self(std::array::from_fn(|at| character(bits >> (35 - 5 * at))))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn character(bits: u64) -> u8 {
    let index = usize::try_from(bits & 31).unwrap_or(0);
    ALPHABET.get(index).copied().unwrap_or(b'0')
}

impl FromStr for Ref {
    type Err = MalformedRef;

    fn from_str(text: &str) -> Result<Self, MalformedRef> {
        let bytes: [u8; LENGTH] = text.as_bytes().try_into().map_err(|_| MalformedRef)?;
        if bytes.iter().all(|byte| ALPHABET.contains(byte)) { Ok(Self(bytes)) } else { Err(MalformedRef) }
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({self})")
    }
}

impl Serialize for Ref {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Ref {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl ToSchema for Ref {}

impl PartialSchema for Ref {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).pattern(Some("^[0-9a-hjkmnp-tv-z]{8}$")).into()
    }
}

/// An id in a path, or the ref of what has this id.
///
/// A machine's id is chosen by its client and can have the form of a ref. It is read as a ref, so who looks for a machine looks
/// for the id first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOrRef<I> {
    Id(I),
    Ref(Ref),
}

impl<I> IdOrRef<I> {
    /// The id. Only a ref has to be looked up.
    ///
    /// # Errors
    /// Those of `find`.
    pub async fn id<E>(self, find: impl AsyncFnOnce(Ref) -> Result<I, E>) -> Result<I, E> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Ref(reference) => find(reference).await,
        }
    }
}

impl<I: FromStr> FromStr for IdOrRef<I> {
    type Err = I::Err;

    fn from_str(text: &str) -> Result<Self, I::Err> {
        text.parse().map_or_else(|_| text.parse().map(Self::Id), |reference| Ok(Self::Ref(reference)))
    }
}

impl<I: fmt::Display> fmt::Display for IdOrRef<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Ref(reference) => reference.fmt(f),
        }
    }
}

impl<I> From<I> for IdOrRef<I> {
    fn from(id: I) -> Self {
        Self::Id(id)
    }
}

impl<'de, I: FromStr<Err: fmt::Display>> Deserialize<'de> for IdOrRef<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ids::{MachineId, RunId};

    #[test]
    fn a_ref_has_eight_characters_of_its_alphabet_and_belongs_to_an_id() {
        let refs: HashSet<Ref> = (0..1_000).map(|_| Ref::of(&RunId::generate())).collect();
        assert_eq!(refs.len(), 1_000);
        let used: HashSet<u8> = refs.iter().flat_map(|reference| reference.0).collect();
        assert_eq!(used.len(), 32);
        for reference in refs {
            assert_eq!(reference.to_string().parse(), Ok(reference));
        }
        // `printf 'ensemble-ref-v1\n%s' ID | sha256sum | cut -c1-10`, in base 32.
        assert_eq!(Ref::of(&"01932b5e-7b1a-7c3e-8f00-000000000001").as_str(), "nfdgfkbv");
        assert_eq!(Ref::of(&"laptop").as_str(), "yngk6cfg");
    }

    #[test]
    fn nothing_else_is_a_ref() {
        for bad in
            ["", "0000000", "000000000", "0000000I", "0000000i", "0000000l", "0000000o", "0000000u", "0000 000", "ääää"]
        {
            assert_eq!(bad.parse::<Ref>(), Err(MalformedRef), "{bad}");
        }
    }

    #[test]
    fn a_path_has_an_id_or_a_ref() {
        let id = RunId::generate();
        assert_eq!(id.to_string().parse(), Ok(IdOrRef::Id(id)));
        let reference = Ref::of(&id);
        assert_eq!(reference.to_string().parse::<IdOrRef<RunId>>(), Ok(IdOrRef::Ref(reference)));
        assert!("last".parse::<IdOrRef<RunId>>().is_err());
        let named: MachineId = "my-laptop".parse().unwrap();
        assert_eq!("my-laptop".parse(), Ok(IdOrRef::Id(named)));
    }
}
