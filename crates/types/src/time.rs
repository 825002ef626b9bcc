//! Points in time on the wire: RFC 3339, UTC, milliseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// Microseconds since 1970-01-01T00:00:00Z, the precision of the databases. Written with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is not an RFC 3339 time between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an RFC 3339 date and time, as in 2026-03-26T00:00:00.000Z")]
pub struct MalformedTime;

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds, as in the claims of a JWT (RFC 7519, "NumericDate").
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    pub fn minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// The duration since `earlier`, or zero when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// Formats the time into a buffer on the stack, as [`fmt::Display`] does.
    fn encode(self) -> Option<[u8; 24]> {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000).ok()?;
        let year = u16::try_from(at.year()).ok().filter(|y| *y <= 9999)?;
        let mut out = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, digits: usize, mut value: u16| {
            for place in (at..at + digits).rev() {
                if let (Some(slot), Ok(digit)) = (out.get_mut(place), u8::try_from(value % 10)) {
                    *slot = b'0' + digit;
                }
                value /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, u16::from(u8::from(at.month())));
        put(8, 2, u16::from(at.day()));
        put(11, 2, u16::from(at.hour()));
        put(14, 2, u16::from(at.minute()));
        put(17, 2, u16::from(at.second()));
        put(20, 3, at.millisecond());
        Some(out)
    }

    fn with_text<T>(self, f: impl FnOnce(&str) -> T) -> Option<T> {
        let bytes = self.encode()?;
        std::str::from_utf8(&bytes).ok().map(f)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text)).unwrap_or(Err(fmt::Error))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text)).unwrap_or_else(|| write!(f, "{} µs since 1970", self.0))
    }
}

impl FromStr for Timestamp {
    type Err = MalformedTime;

    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| MalformedTime)?.to_offset(UtcOffset::UTC);
        if !(1..=9999).contains(&at.year()) {
            return Err(MalformedTime);
        }
        i64::try_from(at.unix_timestamp_nanos() / 1_000).map(Self).map_err(|_| MalformedTime)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.with_text(str::to_owned) {
            Some(text) => serializer.serialize_str(&text),
            None => Err(serde::ser::Error::custom("time outside the years 0 to 9999")),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl ToSchema for Timestamp {}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_utc_with_milliseconds() {
        let at: Timestamp = "2026-03-26T02:00:00.123456+02:00".parse().unwrap();
        assert_eq!(at.to_string(), "2026-03-26T00:00:00.123Z");
        assert_eq!(at.micros() % 1_000_000, 123_456);
    }

    #[test]
    fn refuses_what_is_not_rfc_3339() {
        for bad in ["", "tomorrow", "2026-03-26", "2026-03-26 00:00:00", "2026-13-26T00:00:00Z", "1774483200"] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }
}
