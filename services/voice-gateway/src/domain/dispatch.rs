//! The metadata of an agent's dispatch. Only the agent can read it: it is part of the dispatch, not of the room.

use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::packet::{Pointer, context_url, events_url};
use super::session::VoiceSession;

/// The `metadata` of the dispatch, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    gateway_session_id: GatewaySessionId,
    user_id: &'a str,
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    welcome_message: Option<&'a str>,
    human_identity: &'a str,
    /// The agent joins under it, and the person's client takes calls from it only.
    agent_identity: String,
    expires_at: Timestamp,
    gateway: Gateway<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_bridge: Option<ToolBridge<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Context<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Gateway<'a> {
    context_url: String,
    events_url: String,
    /// How often a heartbeat is posted there. Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_seconds: Option<f64>,
    /// Authenticates the agent of this session, and nothing else.
    token: &'a str,
}

/// The tools of this server, which read for the user.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    base_url: String,
    /// A JWT of identity for this user and voice session that ends with the session.
    token: &'a str,
}

/// The tools of a third-party server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolBridge<'a> {
    base_url: &'a str,
    /// A JWT for this user and session that expires with the session, signed with the key shared with the tool bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

#[derive(Serialize)]
struct Context<'a> {
    version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pointer: Option<Pointer>,
}

/// The credentials in the metadata.
pub(crate) struct Credentials<'a> {
    pub(crate) agent: &'a str,
    pub(crate) tools: Option<&'a str>,
    pub(crate) tool_bridge: Option<&'a str>,
}

/// Writes the metadata. The session's marks decide whether the context is inline or a pointer.
pub(crate) fn metadata(
    session: &VoiceSession,
    context: Option<&str>,
    credentials: &Credentials<'_>,
    (base, heartbeat): (&str, Duration),
) -> Result<String, serde_json::Error> {
    let version = session.context.version;
    let context = match context {
        None => None,
        Some(body) if session.context.dispatched_inline => {
            Some(Context { version, payload: Some(serde_json::from_str(body)?), pointer: None })
        }
        Some(body) => {
            Some(Context { version, payload: None, pointer: Some(Pointer::new(context_url(base, session), body)) })
        }
    };
    serde_json::to_string(&Metadata {
        gateway_session_id: session.id,
        user_id: &session.user_id,
        session_id: &session.session_id,
        language: session.language.as_deref(),
        welcome_message: session.welcome_message.as_deref(),
        human_identity: &session.human_identity,
        agent_identity: session.agent_identity(),
        expires_at: session.expires_at,
        gateway: Gateway {
            context_url: context_url(base, session),
            events_url: events_url(base, session),
            heartbeat_seconds: (!heartbeat.is_zero()).then_some(heartbeat.as_secs_f64()),
            token: credentials.agent,
        },
        tools: credentials.tools.map(|token| Tools { base_url: format!("{base}/v1/voice/tools"), token }),
        tool_bridge: session
            .tool_bridge
            .as_deref()
            .map(|base_url| ToolBridge { base_url, token: credentials.tool_bridge }),
        context,
    })
}
