//! The credentials that operations take.

use serde_json::{Value, json};

use crate::auth::Access;

const BEARER: &str = "bearer";
const VOICE_KEY: &str = "voiceKey";
const VOICE_KEY_AS_BEARER: &str = "voiceKeyAsBearer";
const AGENT: &str = "voiceAgent";
const LIVEKIT: &str = "livekit";

pub(super) fn schemes() -> Value {
    json!({
        BEARER: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "The token of a user (`POST /v1/auth`) or of a machine (`POST /v1/auth/tokens`).",
        },
        VOICE_KEY: {
            "type": "apiKey",
            "in": "header",
            "name": "X-Voice-Key",
            "description": "The key of an application that offers voice. It proves nothing about a person.",
        },
        VOICE_KEY_AS_BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "The voice key in the place of a token.",
        },
        AGENT: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "The token that the agent of a voice session gets with its room. It is for this voice session only.",
        },
        LIVEKIT: {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "LiveKit's signature: a JWT by the API key, with the SHA-256 of the body.",
        },
    })
}

/// Each item is enough by itself, with all that it names. Empty: no credentials.
pub(super) fn requirements(access: Access) -> Value {
    match access {
        Access::Public => json!([]),
        Access::User | Access::UserOrMachine | Access::Machine | Access::UserOrRecovery | Access::AnyToken => {
            json!([{ BEARER: [] }])
        }
        Access::VoiceKey => {
            json!([{ VOICE_KEY: [] }, { VOICE_KEY_AS_BEARER: [] }, { VOICE_KEY: [], BEARER: [] }])
        }
        Access::VoicePerson => json!([{ VOICE_KEY: [], BEARER: [] }]),
        Access::VoiceAgent => json!([{ AGENT: [] }]),
        Access::Webhook => json!([{ LIVEKIT: [] }]),
    }
}
