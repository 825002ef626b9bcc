//! Public links: owners create and remove them, anyone with the address reads through them. The token is never logged.

use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Responder, dev::Payload};
use ensemble_chassis::http::{only, problem_response, request_id};
use ensemble_chassis::{ApiError, Caller, HandlerResult, Json, OptionalJson, Path, Query, State, Upserted};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, Link, LinkState};
use ensemble_types::problem::{Code, Problem};
use ensemble_types::refs::IdOrRef;

use super::messages::WindowQuery;
use super::stream::{self, Credentials, StreamQuery};
use crate::SessionStore;
use crate::domain::public_link::{LinkToken, TokenHash};
use crate::domain::stream::Audience;
use crate::error::Error;
use crate::handlers::actor;
use crate::operations;
use crate::operations::public_links::{CreatedLink, PublicReader};

/// Where browsers say that they prefetch: the standard (Fetch, section 3.8), and what older ones send.
const PURPOSES: [&str; 3] = ["sec-purpose", "purpose", "x-moz"];

pub(crate) async fn create(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    OptionalJson(body): OptionalJson<CreateLink>,
) -> HandlerResult<Upserted<Link>> {
    let id = operations::sessions::resolve(&service, id).await?;
    let CreatedLink { token, terms, created_at, is_new } =
        operations::public_links::create(&service, id, actor(&caller), body).await?;
    let token = token.text();
    let link = Link {
        url: format!("{}/share/{token}", service.share_base_url),
        token,
        expires_at: terms.expires_at,
        max_uses: terms.max_uses,
        uses: 0,
        created_at,
    };
    Ok(Upserted { created: is_new, location: format!("/v1/sessions/{id}/public-share"), body: link })
}

pub(crate) async fn state(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
) -> HandlerResult<Json<LinkState>> {
    let id = operations::sessions::resolve(&service, id).await?;
    Ok(Json(operations::public_links::state(&service, id, actor(&caller)).await?))
}

pub(crate) async fn remove(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
) -> HandlerResult<Json<Deleted>> {
    let id = operations::sessions::resolve(&service, id).await?;
    operations::public_links::remove(&service, id, actor(&caller)).await?;
    Ok(Json(Deleted::DONE))
}

/// Reads a page through a link. HEAD checks whether the link works, and counts no use. A prefetch is refused before the link
/// is looked up: browsers discard an answer that is not 2xx, and ask again when the person opens the page.
pub(crate) async fn view(service: State<SessionStore>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    let viewed = async {
        let query = query::<WindowQuery>(&request).await?;
        let reader = reader(&request)?;
        if request.method() == Method::HEAD {
            operations::public_links::check(&service, reader).await?;
            return Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).finish());
        }
        if is_prefetch(&request) {
            let detail =
                "This link is not opened in advance, because that would cost one of its uses. Open it to read.";
            return Err(Problem::new(Code::Forbidden, detail).into());
        }
        let view = operations::public_links::view(&service, reader, query.window()?).await?;
        Ok(Json(view).respond_to(&request).map_into_boxed_body())
    };
    Ok(with_privacy_headers(viewed.await, &request))
}

pub(crate) async fn watch(service: State<SessionStore>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    let opened = async {
        let query = query::<StreamQuery>(&request).await?;
        let after = stream::start(&request, &query)?;
        let PublicReader { link, view_token, .. } = reader(&request)?;
        let Some(view_token) = view_token else {
            let detail = "Read the link first, and send the `viewToken` of that answer as the header `X-View-Token`.";
            return Err(Problem::new(Code::InvalidArgument, detail).into());
        };
        let (session, until) = operations::public_links::find_viewing(&service, link, view_token.clone()).await?;
        let credentials = Credentials::ViewToken(until, service.clock.clone());
        let audience = Audience::Public { link, view_token };
        Ok(stream::respond(service, session, audience, after, credentials).await?)
    };
    Ok(with_privacy_headers(opened.await, &request))
}

/// Whether a browser fetches the address before a person has opened it. It may announce several purposes, and parameters of
/// each: `prefetch;prerender`.
fn is_prefetch(request: &HttpRequest) -> bool {
    PURPOSES
        .iter()
        .flat_map(|name| request.headers().get_all(*name))
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']))
        .any(|purpose| purpose.trim().eq_ignore_ascii_case("prefetch"))
}

/// Adds the same headers to every response: caches must not store it, and its secret address must not leak as a referrer.
fn with_privacy_headers(result: Result<HttpResponse, ApiError>, request: &HttpRequest) -> HttpResponse {
    let mut response = result.unwrap_or_else(|error| problem_response(error.into_inner(), &request_id(request)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

async fn query<Q: serde::de::DeserializeOwned + 'static>(request: &HttpRequest) -> Result<Q, ApiError> {
    let Query(query) = Query::<Q>::from_request(request, &mut Payload::None).await?;
    Ok(query)
}

fn reader(request: &HttpRequest) -> Result<PublicReader, ApiError> {
    let header = |name: &'static str| -> Result<Option<String>, Problem> {
        let value = only(request, &HeaderName::from_static(name))?;
        Ok(value.map(|value| value.to_str().unwrap_or("").to_owned()))
    };
    let link: TokenHash =
        request.match_info().get("token").and_then(LinkToken::parse).ok_or(Error::LinkNotFound)?.hash();
    let key = header("idempotency-key")?;
    if key.as_ref().is_some_and(|key| !(16..=128).contains(&key.len())) {
        let detail = "`Idempotency-Key` must be 16 to 128 printable ASCII characters.";
        return Err(Problem::new(Code::InvalidArgument, detail).into());
    }
    Ok(PublicReader { link, view_token: header("x-view-token")?, key })
}
