//! JSON-RPC 2.0 (jsonrpc.org/specification), one message a line, without batches: ACP has none.

use serde_json::{Value, json};

pub(super) const PARSE: i64 = -32_700;
pub(super) const INVALID: i64 = -32_600;
pub(super) const NO_METHOD: i64 = -32_601;
pub(super) const PARAMS: i64 = -32_602;
pub(super) const INTERNAL: i64 = -32_603;
/// The codes from here are ACP's own (agentclientprotocol.com, "ErrorCode").
pub(super) const SIGN_IN: i64 = -32_000;
pub(super) const NOT_FOUND: i64 = -32_002;

/// A message of the editor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Note {
        method: String,
        params: Value,
    },
    /// The answer to a request of ours: its result, or its error.
    Answer {
        id: Value,
        result: Result<Value, Value>,
    },
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Error {
    pub(super) code: i64,
    pub(super) text: String,
    pub(super) data: Option<Value>,
}

impl Error {
    pub(super) fn new(code: i64, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), data: None }
    }
}

/// Reads a line. The error has the id of the request, if one can be seen.
pub(super) fn read(line: &str) -> Result<Message, (Value, Error)> {
    let bad = |id, code, text: String| Err((id, Error::new(code, text)));
    let mut message: Value = match serde_json::from_str(line) {
        Ok(message) => message,
        Err(error) => return bad(Value::Null, PARSE, format!("The line is not JSON: {error}.")),
    };
    if message.is_array() {
        return bad(Value::Null, INVALID, "ACP has no batches. Send one message a line.".to_owned());
    }
    let Some(fields) = message.as_object_mut() else {
        return bad(Value::Null, INVALID, "A message is a JSON object.".to_owned());
    };
    let id = fields.remove("id");
    if id.as_ref().is_some_and(|id| !(id.is_string() || id.is_number() || id.is_null())) {
        return bad(Value::Null, INVALID, "`id` is a string or a number.".to_owned());
    }
    let params = fields.remove("params").unwrap_or_default();
    match (id, fields.remove("method")) {
        (Some(id), Some(Value::String(method))) => Ok(Message::Request { id, method, params }),
        (None, Some(Value::String(method))) => Ok(Message::Note { method, params }),
        (id, Some(_)) => bad(id.unwrap_or_default(), INVALID, "`method` is a text.".to_owned()),
        (Some(id), None) => {
            let error = fields.remove("error").filter(|error| !error.is_null());
            Ok(Message::Answer {
                id,
                result: error.map_or_else(|| Ok(fields.remove("result").unwrap_or_default()), Err),
            })
        }
        (None, None) => bad(Value::Null, INVALID, "A message has a `method` or an `id`.".to_owned()),
    }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(super) fn note(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub(super) fn answer(id: &Value, result: Result<Value, Error>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Error { code, text, data }) => {
            let mut error = json!({"code": code, "message": text});
            if let (Some(data), Some(fields)) = (data, error.as_object_mut()) {
                fields.insert("data".to_owned(), data);
            }
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> (Value, i64) {
        let (id, error) = read(line).unwrap_err();
        (id, error.code)
    }

    #[test]
    fn what_is_no_message_gets_an_error() {
        assert_eq!(code("{"), (Value::Null, PARSE));
        assert_eq!(code(&"[".repeat(100_000)), (Value::Null, PARSE), "nested too deeply");
        for line in ["[]", "1", "\"x\"", "null", "{}", "{\"id\":{},\"method\":\"x\"}"] {
            assert_eq!(code(line), (Value::Null, INVALID), "{line}");
        }
        assert_eq!(code(r#"{"id":7,"method":1}"#), (json!(7), INVALID));
    }

    #[test]
    fn messages_are_requests_notes_and_answers() {
        let request = read(r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{"y":1}}"#).unwrap();
        assert_eq!(request, Message::Request { id: json!("a"), method: "x".into(), params: json!({"y": 1}) });
        assert_eq!(read(r#"{"method":"x"}"#).unwrap(), Message::Note { method: "x".into(), params: Value::Null });
        assert_eq!(read(r#"{"id":1,"result":{}}"#).unwrap(), Message::Answer { id: json!(1), result: Ok(json!({})) });
        let failed = Message::Answer { id: json!(1), result: Err(json!({"code": 1})) };
        assert_eq!(read(r#"{"id":1,"error":{"code":1}}"#).unwrap(), failed);
    }
}
