//! The problems of an operation. Their shape stands once in the document, for each status that operations name.

use std::collections::BTreeSet;

use ensemble_types::problem::{Code, PROBLEM_JSON};
use serde_json::{Map, Value, json};

use super::headers;
use crate::auth::Access;
use crate::routes::Row;

/// What any operation can answer. Operations do not repeat them: they are the response `default`.
const OF_ALL: [Code; 11] = [
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::UriTooLong,
    Code::UnsupportedMediaType,
    Code::MisdirectedRequest,
    Code::RateLimited,
    Code::HeadersTooLarge,
    Code::Internal,
    Code::UpstreamError,
    Code::Unavailable,
    Code::UpstreamTimeout,
];

/// The response for what any operation can answer.
const OTHER: &str = "OtherProblem";

/// The responses that are named by their status.
const NAMED: [(u16, &str, &str); 7] = [
    (400, "BadRequest", "The request is not valid. `errors` points to the members and parameters to correct."),
    (401, "Unauthorized", "The request has no valid credentials, or those of a device that was removed."),
    (403, "Forbidden", "The caller is known and may not do this."),
    (404, "NotFound", "There is no such thing, or the caller may not see it."),
    (409, "Conflict", "The request does not fit what is stored now."),
    (416, "RangeNotSatisfiable", "The range is outside the content."),
    (429, "TooManyRequests", "A limit or a quota is used up."),
];

/// The responses in `components`.
pub(super) fn components() -> Value {
    let named = NAMED.iter().map(|(status, name, words)| ((*name).to_owned(), response(words, Some(*status))));
    let words = format!("What any operation can answer: {}.", strings(&OF_ALL).join(", "));
    named.chain([(OTHER.to_owned(), response(&words, None))]).collect::<Map<_, _>>().into()
}

fn response(words: &str, status: Option<u16>) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    let content = json!({ PROBLEM_JSON: { "schema": schema } });
    json!({ "description": words, "headers": headers::of_problem(status), "content": content })
}

/// The responses of a row, by status, and `default`.
pub(super) fn responses(row: &Row) -> Map<String, Value> {
    let statuses: BTreeSet<u16> = codes(row).iter().map(|code| code.status()).collect();
    let named = NAMED.iter().filter(|(status, ..)| statuses.contains(status));
    named
        .map(|(status, name, _)| (status.to_string(), refer(name)))
        .chain([("default".to_owned(), refer(OTHER))])
        .collect()
}

fn refer(name: &str) -> Value {
    json!({ "$ref": format!("#/components/responses/{name}") })
}

/// The codes that a row can answer, by status, without those of all operations.
pub(super) fn own_codes(row: &Row) -> Vec<&'static str> {
    strings(&codes(row))
}

fn strings(codes: &[Code]) -> Vec<&'static str> {
    codes.iter().map(|code| code.as_str()).collect()
}

fn codes(row: &Row) -> Vec<Code> {
    let mut codes = row.doc.errors.clone();
    if row.path.contains('{') || !row.doc.parameters.is_empty() || row.doc.body.is_some() {
        codes.push(Code::InvalidArgument);
    }
    if !matches!(row.access, Access::Public) {
        codes.push(Code::Unauthenticated);
    }
    if !matches!(row.access, Access::Public) && !row.access.is_for_many() {
        codes.push(Code::DeviceRemoved);
    }
    if matches!(row.access, Access::User | Access::Machine | Access::UserOrRecovery) {
        codes.push(Code::Forbidden);
    }
    if row.path.contains('{') {
        codes.push(Code::NotFound);
    }
    if row.doc.body.is_some() {
        codes.push(Code::InvalidJson);
    }
    if row.doc.idempotent {
        codes.extend([Code::IdempotencyMismatch, Code::Conflict]);
    }
    // In the order of their declaration, which is by status.
    Code::ALL.iter().copied().filter(|code| codes.contains(code) && !OF_ALL.contains(code)).collect()
}
