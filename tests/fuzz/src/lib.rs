//! What reads input from outside, one function each that takes any bytes and may not panic, hang or break its promise.
//!
//! `make fuzz` drives them with cargo-fuzz (libFuzzer, nightly); `make test` runs the corpus and mutations of it on stable.

use std::sync::{Arc, OnceLock};

use actix_web::test::TestRequest;
use ed25519_dalek::SigningKey;
use ensemble_chassis::auth::{AuthContext, FixedKeys};
use ensemble_chassis::http::strict_json;
use ensemble_chassis::{Access, Clock, KeySet};
use ensemble_edge_proxy::domain::body_scanner::BodyScanner;
use ensemble_edge_proxy::domain::head_scanner::{Framing, HeadLimits, HeadScanner, Progress};
use ensemble_edge_proxy::domain::request_target;
use ensemble_orchestrator::byte_range;
use ensemble_store_kit::cursor;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::time::Timestamp;

/// A target and its name, which is also its folder under `corpus/`.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("cursor", cursor_of_a_list),
    ("token", token),
    ("request_target", path_normaliser),
    ("request_head", request_head),
    ("chunked_body", chunked_body),
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

/// What passes has none of the forms that two readers understand differently.
pub fn path_normaliser(data: &[u8]) {
    // The authority of an absolute target is compared with Host, which is the head scanner's affair.
    if data.starts_with(b"/") && request_target::check(data).is_ok() {
        let lower = data.to_ascii_lowercase();
        let path = lower.split(|b| *b == b'?').next().unwrap_or_default();
        for no in [&b"%00"[..], b"%2e", b"%2f", b"%5c", b"/../", b"/./", b"\\", b"\0"] {
            assert!(!path.windows(no.len()).any(|part| part == no), "{} passed", String::from_utf8_lossy(data));
        }
    }
}

/// The verdict is the same whether the head comes whole or byte by byte.
pub fn request_head(data: &[u8]) {
    let limits = HeadLimits { fields: 64, head: 32 << 10, body: 16 << 20 };
    let whole = HeadScanner::default().scan(data, &limits);
    let mut scanner = HeadScanner::default();
    let mut piecewise = Ok(Progress::More);
    for end in 1..=data.len() {
        piecewise = scanner.scan(data.get(..end).unwrap_or_default(), &limits);
        if !matches!(piecewise, Ok(Progress::More)) {
            break;
        }
    }
    if let (Ok(Progress::Complete { len, framing }), Ok(piecewise)) = (&whole, &piecewise) {
        assert_eq!(&Progress::Complete { len: *len, framing: *framing }, piecewise);
        let head = data.get(..*len).unwrap_or_default();
        assert!(head.ends_with(b"\r\n\r\n"), "a head ended with something else");
        assert!(!head.contains(&0), "a NUL passed");
    }
    if !data.is_empty() {
        assert_eq!(whole.is_err(), piecewise.is_err(), "{}", String::from_utf8_lossy(data));
    }
}

/// A body's end is found at the same place however it is cut.
pub fn chunked_body(data: &[u8]) {
    let end = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut scanner = BodyScanner::new(Framing::Chunked, 1 << 20)?;
        let mut seen = 0;
        for piece in pieces {
            match scanner.scan(piece) {
                Ok((taken, true)) => return Some(seen + taken),
                Ok((taken, false)) => seen += taken,
                Err(_) => return None,
            }
        }
        None
    };
    assert_eq!(end(&mut std::iter::once(data)), end(&mut data.chunks(1)), "{}", String::from_utf8_lossy(data));
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
