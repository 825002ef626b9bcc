//! Reads values of an agent's messages by JSON Pointer (RFC 6901). A value that is missing or has another type is empty.

use serde_json::Value;

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A text that is there and not empty.
pub(crate) fn some<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    Some(text(value, pointer)).filter(|text| !text.is_empty())
}

pub(crate) fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

pub(crate) fn is_true(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The first line of a text, shortened.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default();
    let shown: String = line.chars().take(MOST).collect();
    let is_whole = shown.len() == text.trim().len();
    let shown = ensemble_protocol::transcript::visible(&shown).into_owned();
    if is_whole { shown } else { format!("{shown}…") }
}
