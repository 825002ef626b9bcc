//! What reads input from outside, one function each that takes any bytes and may not panic, hang or break its promise.
//!
//! `make fuzz` drives them with cargo-fuzz (libFuzzer, nightly); `make test` runs the corpus and mutations of it on stable.

use std::sync::{Arc, OnceLock};

use actix_web::test::TestRequest;
use ed25519_dalek::SigningKey;
use ensemble_chassis::auth::{AuthContext, FixedKeys};
use ensemble_chassis::http::strict_json;
use ensemble_chassis::{Access, Clock, KeySet};
use ensemble_edge_proxy::domain::request_rules;
use ensemble_orchestrator::domain::byte_range;
use ensemble_store_kit::cursor;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::time::Timestamp;

/// A target and its name, which is also its folder under `corpus/`.
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

/// What decodes encodes back to the same cursor, and belongs to one list only.
pub fn cursor_of_a_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = cursor::decode::<(i64, SessionId)>("sessions", text) {
        let again = cursor::encode("sessions", &key);
        assert_eq!(cursor::decode::<(i64, SessionId)>("sessions", &again).ok(), Some(key));
        assert!(cursor::decode::<(i64, SessionId)>("machines", text).is_err(), "a cursor of another list was taken");
    }
}

/// Nothing that was not signed with the one key is believed.
pub fn token(data: &[u8]) {
    static CONTEXT: OnceLock<AuthContext> = OnceLock::new();
    let context = CONTEXT.get_or_init(|| {
        let key = SigningKey::from_bytes(&[3; 32]).verifying_key();
        let keys = FixedKeys::new(KeySet::new([("k".to_owned(), key)], []));
        AuthContext::new(Arc::new(keys), None, Clock::system())
    });
    let Ok(value) = actix_web::http::header::HeaderValue::from_bytes(&[b"Bearer ", data].concat()) else { return };
    let request = TestRequest::default().insert_header(("authorization", value)).to_http_request();
    assert!(context.admit(Access::User, &request).is_err(), "a token that we never signed was believed");
}

/// What passes has none of the forms that two readers understand differently, and still passes when it is normalised.
pub fn request_target(data: &[u8]) {
    let Ok(target) = std::str::from_utf8(data) else { return };
    if request_rules::check_target(target).is_ok() {
        let lower = target.to_ascii_lowercase();
        let path = lower.split('?').next().unwrap_or_default();
        for no in ["%00", "%2e", "%2f", "%5c", "/../", "/./", "\\", "\0"] {
            assert!(!path.contains(no), "{target} passed");
        }
        let plain = request_rules::normalise(target);
        assert!(request_rules::check_target(&plain).is_ok(), "{target} became {plain}");
    }
}

/// What is strict JSON is JSON, and has no key twice.
pub fn json(data: &[u8]) {
    if strict_json::check(data).is_ok() {
        let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_else(|error| {
            panic!("strict JSON that is not JSON ({error}): {}", String::from_utf8_lossy(data));
        });
        assert!(!value.to_string().contains("\\u0000"), "U+0000 passed");
    }
}

/// What is read is written again as it was, or as the same moment.
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

/// Events are the same however the stream is cut.
pub fn events(data: &[u8]) {
    let whole = ensemble_client::sse::read_all(std::iter::once(data));
    let cut = ensemble_client::sse::read_all(data.chunks(1));
    assert_eq!(whole, cut, "{}", String::from_utf8_lossy(data));
}

/// What is given lies within what there is, and is what was asked for. The first two bytes say how much there is.
pub fn range(data: &[u8]) {
    let (Some(length), Some(header)) = (data.first_chunk::<2>(), data.get(2..)) else { return };
    let (length, Ok(header)) = (u64::from(u16::from_le_bytes(*length)), std::str::from_utf8(header)) else { return };
    for length in [length, length << 40, u64::MAX] {
        let Some((first, last)) = byte_range(header, length) else { continue };
        assert!(first <= last && last < length, "{header}: {first}-{last} of {length}");
        // What was given is asked for again in the plainest form.
        assert_eq!(byte_range(&format!("bytes={first}-{last}"), length), Some((first, last)), "{header}");
    }
}
