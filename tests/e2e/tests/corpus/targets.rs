//! The fuzz targets: one function for each parser of outside input. It accepts any bytes and must not panic or hang.
//!
//! `make fuzz` runs them with cargo-fuzz (libFuzzer, nightly). `make test` runs the corpus and mutations of it on
//! stable.

use std::sync::{Arc, OnceLock};

use actix_web::test::TestRequest;
use ed25519_dalek::SigningKey;
use ensemble_chassis::auth::{AuthContext, FixedKeys};
use ensemble_chassis::http::members::Members;
use ensemble_chassis::http::strict_json;
use ensemble_chassis::{Access, Clock, KeySet};
use ensemble_edge_proxy::domain::request_rules;
use ensemble_orchestrator::byte_range;
use ensemble_store_kit::cursor;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::time::Timestamp;

/// The name of a target, which is also its folder under `corpus/`, and its function.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("cursor", cursor_of_a_list),
    ("token", token),
    ("request_target", request_target),
    ("json", json),
    ("ids_and_times", ids_and_times),
    ("events", events),
    ("range", range),
];

/// A decoded cursor encodes back to the same cursor, and only belongs to one list.
pub fn cursor_of_a_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = cursor::decode::<(i64, SessionId)>("sessions", text) {
        let again = cursor::encode("sessions", &key);
        assert_eq!(cursor::decode::<(i64, SessionId)>("sessions", &again).ok(), Some(key));
        assert!(cursor::decode::<(i64, SessionId)>("machines", text).is_err(), "a cursor of another list was accepted");
    }
}

/// A token is only accepted when it is signed with the right key.
pub fn token(data: &[u8]) {
    static CONTEXT: OnceLock<AuthContext> = OnceLock::new();
    let context = CONTEXT.get_or_init(|| {
        let key = SigningKey::from_bytes(&[3; 32]).verifying_key();
        let keys = FixedKeys::new(KeySet::new([("k".to_owned(), key)], []));
        AuthContext::new(Arc::new(keys), None, Clock::system())
    });
    let Ok(value) = actix_web::http::header::HeaderValue::from_bytes(&[b"Bearer ", data].concat()) else { return };
    let request = TestRequest::default().insert_header(("authorization", value)).to_http_request();
    assert!(context.admit(Access::User, &request).is_err(), "a token with a wrong signature was accepted");
}

/// What passes has none of the forms that two readers understand differently.
pub fn request_target(data: &[u8]) {
    let Ok(target) = std::str::from_utf8(data) else { return };
    if request_rules::check_target(target).is_ok() {
        let lower = target.to_ascii_lowercase();
        let path = lower.split('?').next().unwrap_or_default();
        for no in ["%00", "%2e", "%2f", "%5c", "/../", "/./", "\\", "\0"] {
            assert!(!path.contains(no), "{target} passed");
        }
    }
}

/// Strict JSON is JSON without repeated keys.
pub fn json(data: &[u8]) {
    if strict_json::check(data, &Members::free()).is_ok() {
        let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_else(|error| {
            panic!("strict JSON that is not JSON ({error}): {}", String::from_utf8_lossy(data));
        });
        assert!(!has_nul(&value), "U+0000 passed");
    }
}

fn has_nul(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A parsed value is written as it was, or as the same moment.
pub fn ids_and_times(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(id) = text.parse::<SessionId>() {
        assert_eq!(id.to_string(), text);
    }
    if let Ok(id) = text.parse::<MachineId>() {
        assert_eq!(id.as_str(), text);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        let again = at.to_string().parse::<Timestamp>();
        assert_eq!(again.map(|at| at.micros() / 1_000), Ok(at.micros().div_euclid(1_000)));
    }
}

/// The events do not depend on how the stream is cut into chunks.
pub fn events(data: &[u8]) {
    let whole = ensemble_client::sse::read_all(std::iter::once(data));
    let cut = ensemble_client::sse::read_all(data.chunks(1));
    assert_eq!(whole, cut, "{}", String::from_utf8_lossy(data));
}

/// A parsed range is within the content and is the requested one. The first two bytes give the length of the content.
pub fn range(data: &[u8]) {
    let (Some(length), Some(header)) = (data.first_chunk::<2>(), data.get(2..)) else { return };
    let (length, Ok(header)) = (u64::from(u16::from_le_bytes(*length)), std::str::from_utf8(header)) else { return };
    for length in [length, length << 40, u64::MAX] {
        let Some((first, last)) = byte_range(header, length) else { continue };
        assert!(first <= last && last < length, "{header}: {first}-{last} of {length}");
        // The same range in its simplest form must be parsed in the same way.
        assert_eq!(byte_range(&format!("bytes={first}-{last}"), length), Some((first, last)), "{header}");
    }
}
