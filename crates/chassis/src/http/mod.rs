//! The arguments ([`Json`], [`Query`], [`Path`]) and results ([`HandlerResult`]) of handlers.

mod absent;
mod body;
mod budget;
mod callers;
mod compress;
mod error;
mod etag;
mod keeping;
mod large_answer;
mod large_work;
pub mod members;
pub(crate) mod observe;
mod only_here;
mod params;
mod rate_limit;
mod response;
pub mod strict_json;
mod turns;
pub(crate) mod unread;

pub use absent::absent;
pub(crate) use body::MaxBody;
pub use body::{
    BodyError, BodyLimits, BoundedBody, DeferredJson, IdempotencyKey, IdempotentJson, Json, OptionalJson, only,
    read_body,
};
pub(crate) use budget::{BodyBudget, Sender};
pub use callers::{TakeTurn, turns_of_callers};
pub(crate) use callers::{stream_for, work_for};
pub use compress::{Constant, compress};
pub use error::{ApiError, HandlerResult, IntoProblem, problem_response};
pub use etag::{etag_of, known_etag};
pub(crate) use etag::{expect_tag, tagged};
pub use large_answer::LargeAnswer;
pub(crate) use large_answer::{LargeAnswers, count_block};
pub use large_work::Heavy;
pub(crate) use large_work::LargeWork;
pub use observe::{InFlight, InFlightGuard, RequestId, Route, request_id};
pub(crate) use only_here::only_here;
pub use params::{Path, Query};
pub(crate) use params::{StreamParameters, take_parameters};
pub use rate_limit::RateLimit;
pub use response::{Created, Upserted, located};

/// The service itself, shared by all its handlers.
pub type State<S> = actix_web::web::Data<S>;
