//! The OpenAPI document of all services, built from their route tables.

use ensemble_chassis::openapi::{self, Document};
use ensemble_chassis::{Routes, Service};
use ensemble_edge_proxy::EdgeProxy;
use ensemble_identity::Identity;
use ensemble_machine_registry::MachineRegistry;
use ensemble_orchestrator::Orchestrator;
use ensemble_session_store::SessionStore;
use ensemble_voice_gateway::VoiceGateway;
use serde_json::json;

const ABOUT: &str = "Sessions, sharing, machines, runs of coding agents, and voice. Times are RFC 3339 in UTC, ids are \
    opaque, errors are RFC 9457 problems whose `code` programs match on. Sign in with `POST /v1/auth/challenge` and \
    `POST /v1/auth`. Members of a body and parameters of a query that a call does not know are refused where one may have been \
    meant as a limit, a right or an expiry; elsewhere they are ignored, and the header `Ignored-Members` names them. Every answer has `X-Request-Id`, and `RateLimit` and `RateLimit-Policy` where a limit \
    counts. Whole numbers are written without a fraction. A body with a key twice in one object, a lone surrogate, U+0000 in a \
    string (also as `\\u0000`) or more than 32 levels is 400 INVALID_JSON. Streams are \
    Server-Sent Events; their schema is that of what stands after `data:`. Who connects again with the id of the last event of \
    a run or a voice session that is over gets 204, and nothing more will come; a session or link that is gone is 404. A comment comes every 15 s. A stream can \
    end without the event `end`, as when a server stops: connect again.";

/// Every route that is reachable from outside, by service.
pub fn tables() -> [Routes; 6] {
    [
        Identity::routes(),
        MachineRegistry::routes(),
        SessionStore::routes(),
        Orchestrator::routes(),
        VoiceGateway::routes(),
        EdgeProxy::routes(),
    ]
}

/// The document of these routes.
pub fn document() -> serde_json::Result<Document> {
    let info = json!({
        "title": "Ensemble",
        "description": ABOUT,
        "version": "1",
        "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        "contact": { "name": "The operator of this server" },
    });
    openapi::document(info, &tables())
}

/// The document as it is stored in `docs/openapi.json`.
pub fn as_text() -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&document()?)? + "\n")
}
