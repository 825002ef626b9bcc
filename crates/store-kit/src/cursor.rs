//! Cursors: where the last page ended. They are opaque to clients and valid for one list only.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The years 1 to 9999 in microseconds since 1970: every time that a row can hold.
const MOMENTS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// The text is not a cursor of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor does not belong to this list")]
pub struct InvalidCursor;

/// A cursor for `list` (its route, and the filters that change its order) at `key`: the last item's sort key, as in
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
    let key: Value = serde_json::from_str(key).map_err(|_| InvalidCursor)?;
    if !is_key_of_a_row(&key) {
        return Err(InvalidCursor);
    }
    serde_json::from_value(key).map_err(|_| InvalidCursor)
}

/// Clients can write cursors of their own. Values that no row holds are refused here, because a database may fail on them:
/// times out of range, and U+0000 in a text.
fn is_key_of_a_row(key: &Value) -> bool {
    match key {
        Value::Number(number) => number.as_i64().is_some_and(|number| MOMENTS.contains(&number)),
        Value::String(text) => !text.contains('\0'),
        Value::Array(parts) => parts.iter().all(is_key_of_a_row),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_row_holds_are_refused() {
        for key in [r#"[9223372036854775807,"x"]"#, r#"[-9223372036854775808,"x"]"#, r#"[7,"a\u0000"]"#, r#"[1.5,"x"]"#]
        {
            let forged = URL_SAFE_NO_PAD.encode(format!("sessions\n{key}"));
            assert_eq!(decode::<(i64, String)>("sessions", &forged), Err(InvalidCursor), "{key}");
        }
    }

    #[test]
    fn a_cursor_is_valid_for_its_own_list_only() {
        let cursor = encode("sessions", &(7_i64, "x"));
        assert_eq!(decode::<(i64, String)>("sessions", &cursor), Ok((7, "x".to_owned())));
        for (list, text) in [("machines", cursor.as_str()), ("sessions", ""), ("sessions", "%%%"), ("sessions", "AAAA")]
        {
            assert_eq!(decode::<(i64, String)>(list, text), Err(InvalidCursor), "{list} {text}");
        }
        assert_eq!(decode::<(i64, i64)>("sessions", &cursor), Err(InvalidCursor));
    }
}
