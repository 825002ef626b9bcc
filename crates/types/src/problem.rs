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
#[schema(examples(json!({
    "type": "urn:ensemble:problem:invalid_argument",
    "title": "A value in the request is not valid.",
    "status": 400,
    "detail": "/keyEpoch: must be a whole number from 1 on",
    "code": "INVALID_ARGUMENT",
    "requestId": "5f2b9c1e7a",
    "errors": [{"pointer": "/keyEpoch", "detail": "must be a whole number from 1 on"}],
})))]
pub struct Problem {
    /// A URI that names the kind of problem: `urn:ensemble:problem:` and the code in lower case.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short sentence that is the same for every problem with this code.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// What happened this time, and what to do.
    pub detail: String,
    pub code: Code,
    /// Quote this id when you ask for help. It is also in the header `X-Request-Id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The fields that were rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Members that belong to this code only, such as `current` of VERSION_MISMATCH.
    #[serde(flatten, default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Retry after this many seconds. Sent as the header `Retry-After` (RFC 9110, section 10.2.3).
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

/// One field that was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The location: a JSON Pointer into the body (RFC 6901), or `?name` for a query parameter.
    pub pointer: String,
    pub detail: String,
}

macro_rules! codes {
    ($($name:ident $wire:literal $status:literal $title:literal;)*) => {
        /// Stable error codes. Programs match on these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[serde(rename = $wire)] $name,)*
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $wire,)* }
            }

            /// The HTTP status of this code.
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
            .description(Some("Stable error codes. Programs match on these."))
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

codes! {
    InvalidArgument "INVALID_ARGUMENT" 400 "A value in the request is not valid.";
    InvalidJson "INVALID_JSON" 400 "The body is not JSON, or not in the form that is taken here.";
    InvalidCursor "INVALID_CURSOR" 400 "The cursor does not belong to this list.";
    InvalidDependency "INVALID_DEPENDENCY" 400 "A task depends on a task that is not in this run.";
    DependencyCycle "DEPENDENCY_CYCLE" 400 "The task dependencies contain a cycle.";
    Unauthenticated "UNAUTHENTICATED" 401 "The request has no valid credentials.";
    DeviceRemoved "DEVICE_REMOVED" 401 "This device was removed from its account.";
    Forbidden "FORBIDDEN" 403 "You do not have permission to do this.";
    RegistrationClosed "REGISTRATION_CLOSED" 403 "This server does not accept new accounts.";
    NotFound "NOT_FOUND" 404 "The resource was not found.";
    LinkNotFound "LINK_NOT_FOUND" 404 "This link does not exist or has ended.";
    MachineNotFound "MACHINE_NOT_FOUND" 404 "The machine was not found.";
    UserNotFound "USER_NOT_FOUND" 404 "The user was not found.";
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405 "This path does not support this method.";
    RequestTimeout "REQUEST_TIMEOUT" 408 "The request took too long to arrive.";
    VersionMismatch "VERSION_MISMATCH" 409 "The resource has been changed in the meantime.";
    Conflict "CONFLICT" 409 "The request conflicts with the current state.";
    DeviceListConflict "DEVICE_LIST_CONFLICT" 409 "The device list has been changed in the meantime.";
    IdempotencyMismatch "IDEMPOTENCY_MISMATCH" 409 "This Idempotency-Key was already used with another body.";
    SessionNotActive "SESSION_NOT_ACTIVE" 409 "The session is not active.";
    KeyEpochOld "KEY_EPOCH_OLD" 409 "The session has a newer key.";
    MachineAway "MACHINE_AWAY" 409 "The machine does not answer.";
    LeaseLost "LEASE_LOST" 409 "This lease is no longer yours.";
    PayloadTooLarge "PAYLOAD_TOO_LARGE" 413 "The body is too large.";
    UriTooLong "URI_TOO_LONG" 414 "The address is too long.";
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" 415 "This content type is not supported here.";
    RangeNotSatisfiable "RANGE_NOT_SATISFIABLE" 416 "The range is outside the content.";
    MisdirectedRequest "MISDIRECTED_REQUEST" 421 "This address does not answer to that host.";
    RateLimited "RATE_LIMITED" 429 "Too many requests.";
    QuotaExceeded "QUOTA_EXCEEDED" 429 "A quota of the account is used up.";
    HeadersTooLarge "REQUEST_HEADER_FIELDS_TOO_LARGE" 431 "The header fields are too large.";
    Internal "INTERNAL" 500 "The service failed unexpectedly.";
    UpstreamError "UPSTREAM_ERROR" 502 "An upstream service sent no usable response.";
    Unavailable "UNAVAILABLE" 503 "The service is temporarily unavailable.";
    UpstreamTimeout "UPSTREAM_TIMEOUT" 504 "An upstream service did not respond in time.";
}

/// How the detail of [`Problem::no_such_path`] begins. Clients tell by it that a server is older than they are: every server has said
/// so since the first one, with the code of a resource that was not found.
const NO_SUCH_PATH: &str = "There is no such path.";

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
            // An unavailable or slow service may recover soon, so ask for a short pause.
            retry_after: matches!(code.status(), 502..=504).then_some(1),
        }
    }

    /// 400 INVALID_ARGUMENT for one field.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::refused_fields().with_field(pointer, detail)
    }

    /// 400 INVALID_ARGUMENT for fields that are to be added.
    pub fn refused_fields() -> Self {
        Self::new(Code::InvalidArgument, "See `errors` for the fields to correct.")
    }

    pub fn with_field(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Adds a member to the standard ones.
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The account stores as much as it may. `quota` is the quota's name, `limit` its value, and `used` what counts for it
    /// now. Without `Retry-After`, because waiting does not help: `detail` says what does.
    pub fn quota_exceeded(quota: &str, limit: i64, used: i64, detail: impl Into<String>) -> Self {
        Self::new(Code::QuotaExceeded, detail).with("quota", quota).with("limit", limit).with("used", used)
    }

    /// The only 404 for an id that is malformed, absent or not visible to the caller.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "Check the id, and that the resource is yours or shared with you.")
    }

    /// 404 for an address that the server does not have.
    pub fn no_such_path() -> Self {
        Self::new(Code::NotFound, format!("{NO_SUCH_PATH} /openapi.json lists all there are."))
    }

    /// Whether the server does not have the address at all, so that nothing is said about what it names.
    pub fn is_no_such_path(&self) -> bool {
        self.code == Code::NotFound && self.detail.starts_with(NO_SUCH_PATH)
    }

    /// The credentials are missing, wrong or expired: 401.
    pub fn unauthenticated() -> Self {
        Self::new(
            Code::Unauthenticated,
            "Sign in, and send `Authorization: Bearer <token>` with a token that has not expired.",
        )
    }

    /// The key is good, and the account has removed it: 401.
    pub fn device_removed() -> Self {
        Self::new(
            Code::DeviceRemoved,
            "The account's list of devices does not have this one any more. Link it again from another device of the account.",
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
