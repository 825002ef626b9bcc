//! Errors on the wire: one body for every service and for the edge (RFC 9457, `application/problem+json`).

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
use utoipa::openapi::{RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The media type of a problem body (RFC 9457, section 3).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What went wrong, for programs (`code`) and for people (`title`, `detail`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A URI that names the kind of problem: `urn:ensemble:problem:` and the code in lower case.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same short sentence for every occurrence of this code.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// What was wrong this time, and what to do.
    pub detail: String,
    pub code: Code,
    /// What to quote when asking for help; also in the header `X-Request-Id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The fields that were wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Members that belong to this code only, such as `current` of VERSION_MISMATCH.
    #[serde(flatten, default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Seconds after which to try again; sent as the header `Retry-After` (RFC 9110, section 10.2.3).
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// One field that was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where: a JSON Pointer into the body (RFC 6901), or `?name` for a query parameter.
    pub pointer: String,
    pub detail: String,
}

macro_rules! codes {
    ($($name:ident $wire:literal $status:literal $title:literal;)*) => {
        /// Stable names of everything that can go wrong. Programs match on these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[serde(rename = $wire)] $name,)*
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $wire,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

impl ToSchema for Code {}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("Stable names of everything that can go wrong. Programs match on these."))
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

codes! {
    InvalidArgument "INVALID_ARGUMENT" 400 "A value in the request is not acceptable.";
    InvalidJson "INVALID_JSON" 400 "The body is not JSON that this service accepts.";
    InvalidCursor "INVALID_CURSOR" 400 "The cursor does not belong to this list.";
    InvalidDependency "INVALID_DEPENDENCY" 400 "A task depends on something that is not another task of this run.";
    DependencyCycle "DEPENDENCY_CYCLE" 400 "The tasks depend on each other in a circle.";
    Unauthenticated "UNAUTHENTICATED" 401 "The request has no valid credentials.";
    Forbidden "FORBIDDEN" 403 "You may not do this.";
    RegistrationClosed "REGISTRATION_CLOSED" 403 "This server does not take new accounts.";
    NotFound "NOT_FOUND" 404 "There is no such thing.";
    LinkNotFound "LINK_NOT_FOUND" 404 "This link does not work, or does not work any more.";
    MachineNotFound "MACHINE_NOT_FOUND" 404 "You have no machine with this id.";
    UserNotFound "USER_NOT_FOUND" 404 "There is no user with this id.";
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405 "This path does not take this method.";
    RequestTimeout "REQUEST_TIMEOUT" 408 "The request came too slowly.";
    VersionMismatch "VERSION_MISMATCH" 409 "Somebody else changed it first.";
    Conflict "CONFLICT" 409 "The request does not fit the present state.";
    IdempotencyMismatch "IDEMPOTENCY_MISMATCH" 409 "This Idempotency-Key was used with another body.";
    SessionNotActive "SESSION_NOT_ACTIVE" 409 "The session is not active.";
    LeaseLost "LEASE_LOST" 409 "This lease is no longer yours.";
    PayloadTooLarge "PAYLOAD_TOO_LARGE" 413 "The body is too large.";
    UriTooLong "URI_TOO_LONG" 414 "The address is too long.";
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" 415 "The body has a content type that is not taken here.";
    RangeNotSatisfiable "RANGE_NOT_SATISFIABLE" 416 "The range lies outside of what is there.";
    RateLimited "RATE_LIMITED" 429 "Too many requests.";
    HeadersTooLarge "REQUEST_HEADER_FIELDS_TOO_LARGE" 431 "The header fields are too large.";
    Internal "INTERNAL" 500 "Something went wrong in the service.";
    UpstreamError "UPSTREAM_ERROR" 502 "A service behind this one gave no usable answer.";
    Unavailable "UNAVAILABLE" 503 "The service cannot do this at the moment.";
    UpstreamTimeout "UPSTREAM_TIMEOUT" 504 "A service behind this one did not answer in time.";
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:ensemble:problem:{}", code.as_str().to_ascii_lowercase()),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            request_id: String::new(),
            errors: Vec::new(),
            extra: serde_json::Map::new(),
            // A service that is away or slow may be back soon; how soon nobody knows.
            retry_after: matches!(code.status(), 502..=504).then_some(1),
        }
    }

    /// 400 INVALID_ARGUMENT for one field.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, "See `errors` for the fields to mend.").with_field(pointer, detail)
    }

    pub fn with_field(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// A member beside the standard ones.
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The one 404 for what is malformed, absent or not yours.
    pub fn not_found() -> Self {
        Self::new(
            Code::NotFound,
            "Nothing here that you may see. Check the id, and that it is yours or shared with you.",
        )
    }

    /// The one 401.
    pub fn unauthenticated() -> Self {
        Self::new(
            Code::Unauthenticated,
            "Sign in, and send `Authorization: Bearer <token>` with a token that has not expired.",
        )
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.title, self.code.as_str(), self.detail)?;
        for error in &self.errors {
            write!(f, " {}: {}.", error.pointer, error.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
