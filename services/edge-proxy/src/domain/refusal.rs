//! Why the edge refuses a request before any service has seen it.

use ensemble_types::problem::Code;

/// One reason, as a code for programs and a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub detail: &'static str,
}

impl Refusal {
    pub const fn malformed(detail: &'static str) -> Self {
        Self { code: Code::InvalidArgument, detail }
    }

    pub const fn new(code: Code, detail: &'static str) -> Self {
        Self { code, detail }
    }
}

/// The methods that anything behind the edge understands.
pub const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// A method that no route takes; CONNECT and TRACE among them, which a reverse proxy must never honour.
pub const METHOD: Refusal = Refusal::new(Code::MethodNotAllowed, "Use GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.");
pub const URI_TOO_LONG: Refusal = Refusal::new(Code::UriTooLong, "The address is longer than the edge accepts.");
pub const HEAD_TOO_LARGE: Refusal =
    Refusal::new(Code::HeadersTooLarge, "The header fields are larger in all than the edge accepts.");
pub const TOO_MANY_FIELDS: Refusal =
    Refusal::new(Code::HeadersTooLarge, "There are more header fields than the edge accepts.");
