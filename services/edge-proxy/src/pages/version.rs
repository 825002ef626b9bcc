//! Which build answers, and which versions of the interface.

use actix_web::{HttpMessage, HttpRequest};
use ensemble_chassis::{HandlerResult, Json, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::EdgeProxy;
use crate::request_context::RequestContext;

/// The build and the interface.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"name": "ensemble", "version": "0.1.0", "commit": null, "api": ["v1", "v2", "v3"], "dataId": null})))]
pub(crate) struct Version {
    /// `ensemble`
    pub name: &'static str,
    /// The release, as in `0.1.0`.
    pub version: &'static str,
    /// The commit it was built from, where the build knew it.
    pub commit: Option<&'static str>,
    /// The versions of the interface that are served, as path prefixes.
    pub api: [&'static str; 3],
    /// Random, made with the data of the server, and another one for other data. `ensemble up` has one, other servers as configured.
    pub data_id: Option<String>,
    /// `true` where the caller and `ensemble up` run on one computer, and no proxy carries the request. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

pub(crate) async fn version(edge: State<EdgeProxy>, request: HttpRequest) -> HandlerResult<Json<Version>> {
    Ok(Json(Version {
        name: "ensemble",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("BUILD_COMMIT"),
        api: ["v1", "v2", "v3"],
        data_id: edge.config.data_id.clone(),
        local: request.extensions().get::<RequestContext>().is_some_and(|context| context.is_local),
    }))
}
