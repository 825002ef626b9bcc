//! The HTTP side of a handler: what it takes ([`Json`], [`Query`], [`Path`]) and what it gives ([`Answer`]).

mod body;
mod fail;
mod objects;
pub(crate) mod observe;
mod params;
mod reply;
pub mod strict_json;

pub use body::{BodyLimits, IdempotencyKey, Json, Keyed, OptionalJson, Unread, only, read_body};
pub use fail::{Answer, Fail, IntoProblem, problem_response};
pub use observe::{InFlight, Passage, RequestId, request_id};
pub use params::{Path, Query};
pub use reply::{Created, Reply, Upserted};

/// The service itself, shared by all its handlers.
pub type State<S> = actix_web::web::Data<S>;
