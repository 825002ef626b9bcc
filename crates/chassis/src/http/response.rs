//! Successful answers: 201 for a first creation, 200 for everything else, never 204.
//!
//! A 201 says in `Location` where what was made is read (RFC 9110, section 15.3.2): a path, so that it holds at every address of a server.

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use actix_web::{HttpRequest, HttpResponse, Responder};
use serde::Serialize;

use super::body::Json;
use super::error::problem_response;
use super::large_answer;
use super::request_id;

/// 201 with a JSON body.
pub struct Created<T> {
    /// The path at which GET reads it.
    pub location: String,
    pub body: T,
}

/// 201 when the call created the resource, 200 when it existed before (or was replaced).
pub struct Upserted<T> {
    pub created: bool,
    /// The path at which GET reads it.
    pub location: String,
    pub body: T,
}

impl<T: Serialize> Responder for Json<T> {
    type Body = BoxBody;
    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        json(request, StatusCode::OK, &self.0)
    }
}

impl<T: Serialize> Responder for Created<T> {
    type Body = BoxBody;
    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        located(json(request, StatusCode::CREATED, &self.body), &self.location)
    }
}

impl<T: Serialize> Responder for Upserted<T> {
    type Body = BoxBody;
    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        let status = if self.created { StatusCode::CREATED } else { StatusCode::OK };
        located(json(request, status, &self.body), &self.location)
    }
}

/// Adds to a 201 the path at which GET reads what was made.
pub fn located(mut response: HttpResponse, path: &str) -> HttpResponse {
    if response.status() == StatusCode::CREATED
        && let Ok(path) = HeaderValue::from_str(path)
    {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

fn json<T: Serialize>(request: &HttpRequest, status: StatusCode, body: &T) -> HttpResponse {
    match large_answer::json(request, body) {
        Ok(body) => HttpResponse::build(status)
            .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")))
            .body(body),
        Err(problem) => problem_response(problem, &request_id(request)),
    }
}
