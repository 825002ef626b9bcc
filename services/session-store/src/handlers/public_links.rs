//! Public links: made by owners, read by whoever has the address. The token is never logged.

use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY};
use actix_web::{FromRequest, HttpRequest, HttpResponse, dev::Payload};
use ensemble_chassis::http::{only, problem_response, request_id};
use ensemble_chassis::{ApiError, Caller, HandlerResult, Json, OptionalJson, Path, Query, State, Upserted};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, Link};
use ensemble_types::problem::{Code, Problem};

use super::json;
use super::messages::WindowQuery;
use super::stream::{self, Guard, StreamQuery};
use crate::SessionStore;
use crate::domain::link::{LinkToken, TokenHash};
use crate::error::Error;
use crate::store::{PublicReader, Watcher};

pub(crate) async fn create(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    OptionalJson(body): OptionalJson<CreateLink>,
) -> HandlerResult<Upserted<Link>> {
    let made = state.store.make_link(id, caller.user, body).await?;
    let token = made.token.text();
    let link = Link {
        url: format!("{}/share/{token}", state.share_base_url),
        token,
        expires_at: made.terms.expires_at,
        max_uses: made.terms.max_uses,
        uses: 0,
        created_at: made.created_at,
    };
    Ok(Upserted { created: made.is_new, body: link })
}

pub(crate) async fn remove(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
) -> HandlerResult<Json<Deleted>> {
    state.store.remove_link(id, caller.user).await?;
    Ok(Json(Deleted::DONE))
}

/// A viewing. HEAD tells whether there could be one, and counts nothing.
pub(crate) async fn view(state: State<SessionStore>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    let viewed = async {
        let query = query::<WindowQuery>(&request).await?;
        let reader = reader(&request)?;
        if request.method() == Method::HEAD {
            state.store.probe_link(reader).await?;
            return Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).finish());
        }
        Ok(json(state.store.view_link(reader, query.window()?).await?.json))
    };
    Ok(discreet(viewed.await, &request))
}

pub(crate) async fn watch(state: State<SessionStore>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    let opened = async {
        let query = query::<StreamQuery>(&request).await?;
        let after = stream::after(&request, &query)?;
        let PublicReader { link, view_token, .. } = reader(&request)?;
        let view_token = view_token.ok_or(Error::LinkNotFound)?;
        let (session, until) = state.store.viewed_session(link, view_token.clone()).await?;
        let watcher = Watcher::Viewer { link, view_token };
        Ok(stream::follow(&state, session, watcher, after, Guard::Until(until, state.clock.clone())).await?)
    };
    Ok(discreet(opened.await, &request))
}

/// The same headers on every answer: the page is nobody's to keep, and its address is a secret.
fn discreet(answer: Result<HttpResponse, ApiError>, request: &HttpRequest) -> HttpResponse {
    let mut response = answer.unwrap_or_else(|fail| problem_response(fail.into_inner(), &request_id(request)));
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
