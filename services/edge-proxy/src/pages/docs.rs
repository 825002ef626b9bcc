//! The OpenAPI document of all services, and the page to read and try it. Both are built in: nothing is fetched when they
//! are shown, neither from the services nor from the internet.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, LOCATION};
use bytes::Bytes;
use ensemble_chassis::http::etag_of;
use ensemble_chassis::openapi::as_3_0;
use ensemble_chassis::{HandlerResult, Path};
use ensemble_types::problem::Problem;

/// Made by `make openapi` from the route tables of all services.
const DOCUMENT: &[u8] = include_bytes!("../../../../docs/openapi.json");

/// The same in OpenAPI 3.0. It is made when the first tool asks for it.
static OLDER_DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let document = serde_json::from_slice(DOCUMENT).unwrap_or_default();
    Bytes::from(as_3_0(document).to_string())
});

/// A file of Swagger UI, as the build script has unpacked it.
macro_rules! unpacked {
    ($name:literal, $content_type:literal) => {
        ($name, $content_type, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
    };
}

/// The files of the page: name, type, contents.
static FILES: [(&str, &str, &[u8]); 8] = [
    unpacked!("index.html", "text/html; charset=utf-8"),
    unpacked!("index.css", "text/css; charset=utf-8"),
    unpacked!("swagger-ui.css", "text/css; charset=utf-8"),
    unpacked!("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    unpacked!("swagger-ui-standalone-preset.js", "text/javascript; charset=utf-8"),
    unpacked!("favicon-16x16.png", "image/png"),
    unpacked!("favicon-32x32.png", "image/png"),
    ("swagger-initializer.js", "text/javascript; charset=utf-8", include_bytes!("swagger-initializer.js")),
];

/// The page runs its own scripts and calls this server, and nothing else. It sets styles on its elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn document() -> HandlerResult<HttpResponse> {
    let mut answer = HttpResponse::Ok();
    static TAG: LazyLock<String> = LazyLock::new(|| etag_of(DOCUMENT));
    answer
        .content_type("application/json")
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header((ETAG, TAG.as_str()));
    Ok(answer.body(Bytes::from_static(DOCUMENT)))
}

pub(crate) async fn older_document() -> HandlerResult<HttpResponse> {
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/json").insert_header((CACHE_CONTROL, "no-cache"));
    Ok(answer.body(OLDER_DOCUMENT.clone()))
}

/// `/docs`, and `/` for programs: the page's files lie below `/docs/`. Browsers keep a permanent redirect, also when another page is
/// there later.
pub(crate) async fn to_page() -> HandlerResult<HttpResponse> {
    let mut answer = HttpResponse::TemporaryRedirect();
    answer.content_type("text/html; charset=utf-8").insert_header((LOCATION, "/docs/"));
    Ok(answer.body("<a href=\"/docs/\">Documentation</a>\n"))
}

pub(crate) async fn page() -> HandlerResult<HttpResponse> {
    file("")
}

pub(crate) async fn page_file(Path(name): Path<String>) -> HandlerResult<HttpResponse> {
    file(&name)
}

fn file(name: &str) -> HandlerResult<HttpResponse> {
    let name = if name.is_empty() { "index.html" } else { name };
    let (_, content_type, contents) = FILES.iter().find(|file| file.0 == name).ok_or_else(Problem::not_found)?;
    let mut answer = HttpResponse::Ok();
    answer.content_type(*content_type);
    answer.insert_header((CONTENT_SECURITY_POLICY, POLICY)).insert_header((CACHE_CONTROL, "no-cache"));
    Ok(answer.body(Bytes::from_static(contents)))
}
