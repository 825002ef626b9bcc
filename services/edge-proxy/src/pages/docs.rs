//! The OpenAPI document of all services, and the page to read and try it, which is built with the web app. Both are built in: nothing is
//! fetched when they are shown, neither from the services nor from the internet.

use std::sync::LazyLock;

use actix_web::http::header::{CACHE_CONTROL, ETAG, LOCATION};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use ensemble_chassis::http::Constant;
use ensemble_chassis::openapi::as_3_0;
use ensemble_chassis::{HandlerResult, Path, State};
use ensemble_types::problem::Problem;

use super::web;
use crate::EdgeProxy;

/// Made by `make openapi` from the route tables of all services.
const DOCUMENT: &[u8] = include_bytes!("../../../../docs/openapi.json");

static CURRENT: LazyLock<Constant> = LazyLock::new(|| Constant::new(Bytes::from_static(DOCUMENT)));

/// The same in OpenAPI 3.0. It is made when the first tool asks for it.
static OLDER: LazyLock<Constant> = LazyLock::new(|| {
    let document = serde_json::from_slice(DOCUMENT).unwrap_or_default();
    Constant::new(Bytes::from(as_3_0(document).to_string()))
});

pub(crate) async fn document() -> HandlerResult<HttpResponse> {
    Ok(constant(&CURRENT))
}

pub(crate) async fn older_document() -> HandlerResult<HttpResponse> {
    Ok(constant(&OLDER))
}

fn constant(document: &'static LazyLock<Constant>) -> HttpResponse {
    let document: &'static Constant = document;
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/json").insert_header((CACHE_CONTROL, "no-cache"));
    answer.insert_header((ETAG, document.etag()));
    answer.extensions_mut().insert(document);
    answer.body(document.plain())
}

/// `/docs`, and `/` for programs: the page's files lie below `/docs/`. Browsers keep a permanent redirect, also when another page is
/// there later.
pub(crate) async fn to_page() -> HandlerResult<HttpResponse> {
    let mut answer = HttpResponse::TemporaryRedirect();
    answer.content_type("text/html; charset=utf-8").insert_header((LOCATION, "/docs/"));
    Ok(answer.body("<a href=\"/docs/\">Documentation</a>\n"))
}

/// Swagger UI, or the page that says how to build it.
pub(crate) async fn page(edge: State<EdgeProxy>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    match web::file(&edge, &request, "docs/index.html") {
        Some(page) => Ok(page),
        None => web::page(&edge, &request),
    }
}

pub(crate) async fn page_file(
    edge: State<EdgeProxy>,
    request: HttpRequest,
    Path(_): Path<String>,
) -> HandlerResult<HttpResponse> {
    Ok(web::other(&edge, &request).ok_or_else(Problem::not_found)?)
}
