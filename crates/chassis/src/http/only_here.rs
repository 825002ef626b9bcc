//! Listeners whose callers are all on this computer answer to its names only (`entrance::OnlyHere`).

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use ensemble_types::problem::{Code, Problem};

use super::{problem_response, request_id};
use crate::entrance::names_this_computer;

/// Refuses a request that names another host than this computer.
pub(crate) async fn only_here<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    if names_this_computer(request.headers()) {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let detail = "Only programs of this computer call this port. Use the address that `ensemble up` shows.";
    let response = problem_response(Problem::new(Code::MisdirectedRequest, detail), &request_id(request.request()));
    Ok(request.into_response(response).map_into_right_body())
}
