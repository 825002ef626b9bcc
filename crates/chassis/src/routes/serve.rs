//! What a row does with a request.

use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::http::Method;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderMap, HeaderValue};
use actix_web::{FromRequest, Handler, HttpMessage, HttpRequest, HttpResponse, Resource, Responder, dev::Payload, web};
use ensemble_types::problem::{Code, Problem};

use super::Row;
use crate::auth::{Access, AuthContext};
use crate::http::members::Known;
use crate::http::{
    ApiError, LargeAnswer, Sender, absent, count_block, problem_response, request_id, stream_for, tagged,
    take_parameters, work_for,
};

/// What is done with a request before its handler has it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) access: Access,
    pub(super) in_turn: bool,
    /// The body holds parameters.
    pub(super) has_parameters: bool,
}

/// Checks credentials before the body is read, then reads the arguments, then calls the handler.
pub(super) async fn answer<H, Args, R>(
    handler: H,
    Shape { access, in_turn, has_parameters }: Shape,
    known: &Known,
    request: &HttpRequest,
    payload: &mut Payload,
) -> Result<HttpResponse, Problem>
where
    H: Handler<Args, Output = Result<R, ApiError>>,
    Args: FromRequest,
    R: Responder + 'static,
{
    if let Some(context) = request.app_data::<web::Data<AuthContext>>()
        && let Some(caller) = context.admit(access, request)?
    {
        request.extensions_mut().insert(caller);
    }
    if has_parameters {
        take_parameters(request, payload).await?;
    }
    known.check_query(request)?;
    let args = Args::from_request(request, payload).await.map_err(|error| problem_of(&error.into()))?;
    let _turn = if in_turn { Some(LargeAnswer::of(request).turn().await?) } else { None };
    // Behind these is a service that calls for many.
    let is_for_many = access.is_for_many();
    let caller = (!is_for_many).then(|| Sender::of(request));
    match work_for(caller.clone(), handler.call(args)).await {
        Ok(reply) => {
            let response = tagged(request, reply.respond_to(request).map_into_boxed_body());
            count_block(request, response.map_body(|_, body| stream_for(caller, body)))
        }
        Err(fail) => Err(fail.into_inner()),
    }
}

/// Tells the edge, and proxies before it, to pass an answer on as it is (RFC 9111, section 5.2.2.6).
pub(super) fn forbid_transforming(headers: &mut HeaderMap) {
    let said = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or("no-store");
    let said = if said.contains("no-transform") { said.to_owned() } else { format!("{said}, no-transform") };
    if let Ok(value) = HeaderValue::from_str(&said) {
        headers.insert(CACHE_CONTROL, value);
    }
}

fn problem_of(error: &actix_web::Error) -> Problem {
    match error.as_error::<ApiError>() {
        Some(fail) => fail.problem().clone(),
        None => {
            tracing::error!(%error, "A handler's arguments could not be made");
            Problem::new(
                Code::Internal,
                "Something went wrong in the service. Quote the request id when you report it.",
            )
        }
    }
}

pub(super) fn resource(path: &str, rows: &[&Row]) -> Resource {
    let mut allowed: Vec<&str> = rows.iter().map(|row| row.method.as_str()).collect();
    let mut resource = web::resource(path);
    for row in rows {
        let run = Arc::clone(&row.run);
        let call = move |request: HttpRequest, payload: web::Payload| run(request, payload.into_inner());
        resource = resource.route(web::method(row.method.clone()).to(call));
        if row.method == Method::GET {
            // HEAD is GET without the body (RFC 9110, section 9.3.2). A route that counts its readers checks the method.
            let run = Arc::clone(&row.run);
            let call = move |request: HttpRequest, payload: web::Payload| {
                let answer = run(request, payload.into_inner());
                async move { answer.await.map_body(|_, body| absent(body.size())) }
            };
            resource = resource.route(web::head().to(call));
            allowed.push("HEAD");
        }
    }
    let allow = HeaderValue::from_str(&allowed.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""));
    resource.default_service(web::to(move |request: HttpRequest| {
        let allow = allow.clone();
        async move {
            let problem = Problem::new(Code::MethodNotAllowed, "See the header `Allow` for the methods of this path.");
            let mut response = problem_response(problem, &request_id(&request));
            response.headers_mut().insert(ALLOW, allow);
            response
        }
    }))
}

pub(crate) async fn no_such_route(request: HttpRequest) -> HttpResponse {
    problem_response(Problem::no_such_path(), &request_id(&request))
}
