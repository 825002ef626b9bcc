//! The table: method, path, who may, handler.

use ensemble_chassis::{Routes, Who, get, post};
use ensemble_types::problem::Code;
use ensemble_types::voice::{
    SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceAgentEvent, VoiceAgentHeard,
    VoiceContext, VoicePulledText, VoiceStart, VoiceStatus, VoiceStop, VoiceText,
};

use crate::handlers::{agent, hooks, injections, sessions};

const VOICE: &str = "Voice";
const AGENT: &str = "Voice agents";

pub(crate) fn table() -> Routes {
    Routes::new()
        .row(
            post("/v1/voice/session/start")
                .who(Who::VoiceKey)
                .says(VOICE, "Opens a voice session: a room with an agent, and a token for one person.")
                .idempotent()
                .takes::<StartVoiceSession>()
                .gives::<VoiceStart>(200)
                .errors(&[
                    Code::Forbidden,
                    Code::IdempotencyMismatch,
                    Code::Conflict,
                    Code::SessionNotActive,
                    Code::UpstreamError,
                    Code::Unavailable,
                ])
                .to(sessions::start),
        )
        .row(
            post("/v1/voice/session/stop")
                .who(Who::VoiceKey)
                .says(VOICE, "Ends a voice session and deletes its room.")
                .takes::<StopVoiceSession>()
                .gives::<VoiceStop>(200)
                .to(sessions::stop),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/status")
                .who(Who::VoiceKey)
                .says(VOICE, "Tells where a voice session stands.")
                .gives::<VoiceStatus>(200)
                .errors(&[Code::NotFound])
                .to(sessions::status),
        )
        .row(
            post("/v1/voice/session/text")
                .who(Who::VoiceKey)
                .says(VOICE, "Puts a text into the conversation. Texts arrive once and in order.")
                .takes::<SendVoiceText>()
                .gives::<VoiceText>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .to(injections::text),
        )
        .row(
            post("/v1/voice/session/context")
                .who(Who::VoiceKey)
                .says(VOICE, "Tells the agent the state of the application. The newest version wins.")
                .takes::<SendVoiceContext>()
                .gives::<VoiceContext>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .to(injections::context),
        )
        .row(
            post("/hooks/livekit")
                .who(Who::Signed)
                .says(VOICE, "Takes LiveKit's webhooks, by their signature.")
                .gives::<VoiceAgentHeard>(200)
                .to(hooks::livekit),
        )
        .row(
            get("/agent/v1/sessions/{id}/context")
                .who(Who::Signed)
                .says(AGENT, "The newest context as it was sent, its version in the header `X-Context-Version`.")
                .gives_as(200, "application/json")
                .errors(&[Code::NotFound])
                .to(agent::context),
        )
        .row(
            get("/agent/v1/sessions/{id}/texts/{seq}")
                .who(Who::Signed)
                .says(AGENT, "A text that was too large for a packet.")
                .gives::<VoicePulledText>(200)
                .errors(&[Code::NotFound])
                .to(agent::text),
        )
        .row(
            post("/agent/v1/sessions/{id}/events")
                .who(Who::Signed)
                .says(AGENT, "What the agent tells of itself: ready, state, transcript, error.")
                .takes::<VoiceAgentEvent>()
                .gives::<VoiceAgentHeard>(200)
                .errors(&[Code::NotFound, Code::Unavailable])
                .to(agent::event),
        )
}
