//! The header fields of answers. Each stands once in the document.

use serde_json::{Map, Value, json};

use crate::routes::Row;

const REQUEST_ID: &str = "X-Request-Id";
const RATE_LIMIT: &str = "RateLimit";
const RATE_LIMIT_POLICY: &str = "RateLimit-Policy";
const RETRY_AFTER: &str = "Retry-After";
const WWW_AUTHENTICATE: &str = "WWW-Authenticate";
const LOCATION: &str = "Location";
const ETAG: &str = "ETag";
const IGNORED_MEMBERS: &str = "Ignored-Members";
const CONTENT_RANGE: &str = "Content-Range";
const CONTEXT_VERSION: &str = "X-Context-Version";

/// Name, type, words, example.
const FIELDS: [(&str, &str, &str, &str); 10] = [
    (
        REQUEST_ID,
        "string",
        "Names this request in the log of the server: that of the request, or a new one.",
        "5f2b9c1e7a",
    ),
    (
        RATE_LIMIT,
        "string",
        "What is left of the limit that is used up most, and the seconds until it is full again.",
        "\"account\";r=598;t=1",
    ),
    (
        RATE_LIMIT_POLICY,
        "string",
        "How many requests this limit allows, in how many seconds.",
        "\"account\";q=600;w=60",
    ),
    (RETRY_AFTER, "integer", "Try again after this many seconds. Absent where waiting does not help.", "5"),
    (
        WWW_AUTHENTICATE,
        "string",
        "The scheme that is expected (RFC 9110, section 11.6.1).",
        "Bearer realm=\"ensemble\"",
    ),
    (
        LOCATION,
        "string",
        "The path at which what was made can be read.",
        "/v1/sessions/01932b5e-7b1a-7c3e-8f00-000000000001",
    ),
    (
        ETAG,
        "string",
        "Names these bytes. Send it as `If-None-Match` to get 304 while they are current.",
        "\"d41d8cd98f00b204\"",
    ),
    (
        IGNORED_MEMBERS,
        "string",
        "Members of the body and parameters of the query (`?name`) that are not known and were \
                     ignored, at most ten.",
        "titel, ?limits",
    ),
    (
        CONTENT_RANGE,
        "string",
        "The bytes that follow, and how many there are in all (RFC 9110, section 14.4).",
        "bytes 0-99/1200",
    ),
    (CONTEXT_VERSION, "integer", "The version of the context.", "3"),
];

/// The fields in `components`.
pub(super) fn components() -> Value {
    let fields = FIELDS.iter().map(|(name, kind, words, example)| {
        let example =
            if *kind == "integer" { example.parse::<u32>().unwrap_or_default().into() } else { json!(example) };
        ((*name).to_owned(), json!({ "description": words, "schema": { "type": kind }, "example": example }))
    });
    fields.collect::<Map<_, _>>().into()
}

/// Of an answer that is no problem, without what every answer has.
pub(super) fn of_success(row: &Row, status: u16) -> Value {
    let etag = row.etag && matches!(status, 200 | 304);
    let fields = [
        (LOCATION, status == 201),
        (ETAG, etag),
        (CONTENT_RANGE, status == 206),
        (CONTEXT_VERSION, row.doc.sends_context_version),
        (IGNORED_MEMBERS, !row.closed),
    ];
    let sent: Vec<&str> = fields.into_iter().filter_map(|(name, is_sent)| is_sent.then_some(name)).collect();
    refer(&sent)
}

/// Of the problems of a status. Generators repeat them for each operation, so what every answer has stands in one of them only.
pub(super) fn of_problem(status: Option<u16>) -> Value {
    refer(&match status {
        Some(401) => vec![WWW_AUTHENTICATE],
        Some(429) => vec![RETRY_AFTER],
        Some(_) => Vec::new(),
        None => vec![REQUEST_ID, RATE_LIMIT, RATE_LIMIT_POLICY, RETRY_AFTER],
    })
}

fn refer(names: &[&str]) -> Value {
    let fields =
        names.iter().map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") })));
    fields.collect::<Map<_, _>>().into()
}
