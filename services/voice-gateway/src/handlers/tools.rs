//! The agent's tools of the server. Their bearer is a token of one voice session, which identity has signed.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use ensemble_chassis::auth::{VoiceToolClaims, bearer};
use ensemble_chassis::{ApiError, HandlerResult, Json, KeySource, Query, State};
use ensemble_types::ids::RunId;
use ensemble_types::page::Limit;
use ensemble_types::problem::{Code, Problem};
use ensemble_types::refs::IdOrRef;
use ensemble_types::voice_tools::{VoiceToolRunDetail, VoiceToolRuns, VoiceToolSessions};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::VoiceGateway;
use crate::domain::tool_call::ToolCall;

/// Which of them.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ToolListQuery {
    /// Only those that have not ended.
    #[serde(default)]
    active: bool,
    /// How many. The default is 10.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<10, 20>,
}

/// Which run.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ToolRunQuery {
    /// Its id or its ref.
    #[param(value_type = String)]
    run: IdOrRef<RunId>,
}

/// The agent of a voice session, by the token's signature and time. The operation checks whether the session is still open.
pub(crate) struct ToolCaller(VoiceToolClaims);

impl FromRequest for ToolCaller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request).map(Self).map_err(ApiError::from))
    }
}

fn read(request: &HttpRequest) -> Result<VoiceToolClaims, Problem> {
    let service = request.app_data::<web::Data<VoiceGateway>>().ok_or_else(Problem::unauthenticated)?;
    let token = bearer(request).ok_or_else(Problem::unauthenticated)?;
    let keys = service.keys.current().map_err(|_| {
        Problem::new(Code::Unavailable, "The signing keys cannot be fetched at the moment. Try again shortly.")
            .with_retry_after(2)
    })?;
    VoiceToolClaims::verify(token, &keys, service.clock.now()).map_err(|reason| {
        tracing::debug!(%reason, "Refused the token of a voice agent");
        Problem::unauthenticated()
    })
}

pub(crate) async fn runs(
    service: State<VoiceGateway>,
    ToolCaller(caller): ToolCaller,
    Query(query): Query<ToolListQuery>,
) -> HandlerResult<Json<VoiceToolRuns>> {
    Ok(Json(service.tool_runs(&caller, query.active, query.limit.get()).await?))
}

pub(crate) async fn run(
    service: State<VoiceGateway>,
    ToolCaller(caller): ToolCaller,
    Query(query): Query<ToolRunQuery>,
) -> HandlerResult<Json<VoiceToolRunDetail>> {
    Ok(Json(service.tool_run(&caller, ToolCall::Run(query.run)).await?))
}

pub(crate) async fn sessions(
    service: State<VoiceGateway>,
    ToolCaller(caller): ToolCaller,
    Query(query): Query<ToolListQuery>,
) -> HandlerResult<Json<VoiceToolSessions>> {
    Ok(Json(service.tool_sessions(&caller, query.active, query.limit.get()).await?))
}
