//! Turns an error into a problem response, the only body that errors have.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use ensemble_types::problem::{PROBLEM_JSON, Problem};

/// The result of a handler.
pub type HandlerResult<T> = Result<T, ApiError>;

/// An error that can become a problem. Each service implements it once, in its `error.rs`.
pub trait IntoProblem {
    /// The problem for the caller. Details that the caller must not see are logged here.
    fn into_problem(self) -> Problem;
}

/// The error of a handler: a problem that is sent to the caller.
#[derive(Debug)]
pub struct ApiError(Box<Problem>);

impl ApiError {
    pub fn problem(&self) -> &Problem {
        &self.0
    }

    pub fn into_inner(self) -> Problem {
        *self.0
    }
}

impl<E: IntoProblem> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self(Box::new(error.into_problem()))
    }
}

impl IntoProblem for Problem {
    fn into_problem(self) -> Problem {
        self
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        status_of(&self.0)
    }

    fn error_response(&self) -> HttpResponse {
        problem_response((*self.0).clone(), "")
    }
}

/// A problem as a response, with the headers that go with its code.
pub fn problem_response(mut problem: Problem, request_id: &str) -> HttpResponse {
    if problem.request_id.is_empty() {
        request_id.clone_into(&mut problem.request_id);
    }
    let mut response = HttpResponse::build(status_of(&problem));
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON)));
    if problem.status == 401 {
        response.insert_header((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ensemble\"")));
    }
    if let Some(seconds) = problem.retry_after {
        response.insert_header((RETRY_AFTER, HeaderValue::from(seconds)));
    }
    match serde_json::to_vec(&problem) {
        Ok(body) => response.body(body),
        Err(_) => response.finish(),
    }
}

fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
