//! The JSON of texts and contexts for the agent, and what is sent when it is too large.
//!
//! PerformRpc takes 15,360 bytes each way, counted after encoding; a data packet should stay below 15 KiB as well, since
//! larger ones abort the channel of some clients. The agent fetches what does not fit.

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::outbox::{Item, Speech};
use super::session::VoiceSession;

/// LiveKit's limit for the payload of one RPC.
pub(crate) const PACKET_MAX: usize = 15_360;

/// Bytes for what surrounds the content: ids, names, times.
const ENVELOPE: usize = 1_024;

/// The RPC methods that the agent registers.
pub(crate) const TEXT_METHOD: &str = "voice.text";
pub(crate) const SAY_METHOD: &str = "voice.say";
pub(crate) const ALIVE_METHOD: &str = "voice.alive";
pub(crate) const CONTEXT_METHOD: &str = "voice.context";

/// A packet for the agent, and whether it contains the item itself.
pub(crate) struct Packet {
    pub(crate) body: String,
    /// False: it contains the address to fetch it from.
    pub(crate) whole: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The field from which older agents read the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupt: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pointer: Option<Pointer>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    about: Option<About<'a>>,
}

/// Session, user and time, for agents that get packets and no RPC.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    gateway_session_id: ensemble_types::ids::GatewaySessionId,
    app_session_id: &'a str,
    user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<ensemble_types::time::Timestamp>,
}

/// Where a large item is, and how to verify it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pointer {
    pub(crate) url: String,
    pub(crate) sha256: String,
    pub(crate) bytes: usize,
}

impl Pointer {
    pub(crate) fn new(url: String, content: &str) -> Self {
        Self { url, sha256: hex(&Sha256::digest(content.as_bytes())), bytes: content.len() }
    }
}

/// How the packet is sent. The two transports differ in what surrounds the content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Rpc,
    Data,
}

/// Packs an item. `inline_max` bounds the contexts that are sent inline; `base` is the gateway's address for the agent.
pub(crate) fn pack(
    item: &Item,
    session: &VoiceSession,
    transport: Transport,
    inline_max: usize,
    base: &str,
) -> Result<Packet, serde_json::Error> {
    let about = |created_at| {
        (transport == Transport::Data).then_some(About {
            gateway_session_id: session.id,
            app_session_id: &session.session_id,
            user_id: &session.user_id,
            created_at,
        })
    };
    let empty = Wire {
        kind: None,
        id: "",
        seq: None,
        version: None,
        text: None,
        message: None,
        interrupt: None,
        payload: None,
        pointer: None,
        about: None,
    };
    match item {
        Item::Text { seq, message_id, text, created_at, speech } => {
            let (kind, interrupt) = match speech {
                Speech::Turn => ("text", None),
                Speech::Say { interrupt } => ("say", Some(*interrupt)),
            };
            let about = about(Some(*created_at));
            let envelope = Wire { id: message_id, seq: Some(*seq), interrupt, about, ..empty };
            let whole = match transport {
                Transport::Rpc => Wire { text: Some(text), ..envelope },
                Transport::Data => Wire { kind: Some(kind), message: Some(text), ..envelope },
            };
            let body = serde_json::to_string(&whole)?;
            if body.len() <= PACKET_MAX {
                return Ok(Packet { body, whole: true });
            }
            let url = text_url(base, session, *seq);
            let pointer = Wire { text: None, message: None, pointer: Some(Pointer::new(url, text)), ..whole };
            Ok(Packet { body: serde_json::to_string(&pointer)?, whole: false })
        }
        Item::Context { version, body } => {
            let id = format!("context-{version}");
            let kind = (transport == Transport::Data).then_some("context");
            let envelope = Wire { kind, id: &id, version: Some(*version), about: about(None), ..empty };
            let whole = body.len() <= inline_max.min(PACKET_MAX - ENVELOPE);
            let wire = if whole {
                Wire { payload: Some(serde_json::from_str(body)?), ..envelope }
            } else {
                Wire { pointer: Some(Pointer::new(context_url(base, session), body)), ..envelope }
            };
            Ok(Packet { body: serde_json::to_string(&wire)?, whole })
        }
    }
}

pub(crate) fn context_url(base: &str, session: &VoiceSession) -> String {
    format!("{base}/agent/v1/sessions/{}/context", session.id)
}

pub(crate) fn events_url(base: &str, session: &VoiceSession) -> String {
    format!("{base}/agent/v1/sessions/{}/events", session.id)
}

fn text_url(base: &str, session: &VoiceSession, seq: i64) -> String {
    format!("{base}/agent/v1/sessions/{}/texts/{seq}", session.id)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
