//! Cursors: where the last page ended, opaque to clients, good for one list only.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::problem::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The text is not a cursor of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor does not belong to this list")]
pub struct InvalidCursor;

impl From<InvalidCursor> for Problem {
    fn from(_: InvalidCursor) -> Self {
        Self::new(Code::InvalidCursor, "Use `nextCursor` of the same list unchanged, or begin without a cursor.")
    }
}

/// A cursor for `list` (its route, and whatever filter changes its order) at `key`: the last item's sort key, as in
/// `cursor::encode("sessions", &(row.updated_at.micros(), row.id))`.
pub fn encode(list: &str, key: &impl Serialize) -> String {
    let key = serde_json::to_string(key).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(format!("{list}\n{key}"))
}

/// The key that [`encode`] was given for the same list.
pub fn decode<K: DeserializeOwned>(list: &str, cursor: &str) -> Result<K, InvalidCursor> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| InvalidCursor)?;
    let (found, key) = text.split_once('\n').ok_or(InvalidCursor)?;
    if found != list {
        return Err(InvalidCursor);
    }
    serde_json::from_str(key).map_err(|_| InvalidCursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let cursor = encode("sessions", &(7_i64, "x"));
        assert_eq!(decode::<(i64, String)>("sessions", &cursor), Ok((7, "x".to_owned())));
        for (list, text) in [("machines", cursor.as_str()), ("sessions", ""), ("sessions", "%%%"), ("sessions", "AAAA")]
        {
            assert_eq!(decode::<(i64, String)>(list, text), Err(InvalidCursor), "{list} {text}");
        }
        assert_eq!(decode::<(i64, i64)>("sessions", &cursor), Err(InvalidCursor));
    }
}
