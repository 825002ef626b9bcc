//! The public door: one file for each noun, one function for each verb.

pub(crate) mod messages;
pub(crate) mod public_links;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod stream;

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};

/// JSON that is written already.
fn json(body: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json"))).body(body)
}
