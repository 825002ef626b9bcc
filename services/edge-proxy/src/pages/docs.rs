//! The OpenAPI document of all services, and the page to read and try it. Both are built in: nothing is fetched when they
//! are shown, neither from the services nor from the internet.

use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, LOCATION};
use bytes::Bytes;
use ensemble_chassis::{HandlerResult, Path};
use ensemble_types::problem::Problem;
use utoipa_swagger_ui::Config;

/// Made by `make openapi` from the route tables of all services.
const DOCUMENT: &[u8] = include_bytes!("../../../../docs/openapi.json");

/// The page runs its own scripts and calls this server, and nothing else. It sets styles on its elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn document() -> HandlerResult<HttpResponse> {
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/json").insert_header((CACHE_CONTROL, "no-cache"));
    Ok(answer.body(Bytes::from_static(DOCUMENT)))
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
    static CONFIG: LazyLock<Arc<Config<'static>>> =
        LazyLock::new(|| Arc::new(Config::from("/openapi.json").try_it_out_enabled(true).validator_url("none")));
    match utoipa_swagger_ui::serve(name, Arc::clone(&CONFIG)) {
        Ok(Some(file)) => {
            let mut answer = HttpResponse::Ok();
            answer.content_type(file.content_type.as_str());
            answer.insert_header((CONTENT_SECURITY_POLICY, POLICY)).insert_header((CACHE_CONTROL, "no-cache"));
            if file.gzpipped {
                answer.insert_header((CONTENT_ENCODING, "gzip"));
            }
            Ok(answer.body(file.bytes.into_owned()))
        }
        Ok(None) => Err(Problem::not_found().into()),
        Err(error) => {
            tracing::error!(%error, "The documentation page cannot be made");
            Err(Problem::not_found().into())
        }
    }
}
