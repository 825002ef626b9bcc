//! Health of the edge. A service that is away does not make the edge unready: the other services still answer.

use actix_web::HttpResponse;
use ensemble_chassis::{HandlerResult, State};
use ensemble_types::problem::{Code, Problem};

use crate::EdgeProxy;

pub(crate) async fn alive() -> HandlerResult<HttpResponse> {
    Ok(HttpResponse::Ok().content_type("text/plain").body("alive\n"))
}

pub(crate) async fn ready(edge: State<EdgeProxy>) -> HandlerResult<HttpResponse> {
    if edge.drain.is_draining() {
        return Err(Problem::new(Code::Unavailable, "This replica is about to stop.").into());
    }
    Ok(HttpResponse::Ok().content_type("text/plain").body("ready\n"))
}
