//! The table of routes: method, path, access, shapes, errors, handler.

use ensemble_chassis::{Access, Routes, get, post};
use ensemble_types::events::VoiceSessionEvent;
use ensemble_types::problem::Code;
use ensemble_types::voice::{
    SayVoiceText, SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceAgentEvent,
    VoiceAgentHeard, VoiceContext, VoiceKey, VoicePulledText, VoiceStart, VoiceStatus, VoiceStop, VoiceText,
};
use ensemble_types::voice_history::{VoiceSessionPage, VoiceTranscript};
use ensemble_types::voice_tools::{VoiceToolRunDetail, VoiceToolRuns, VoiceToolSessions};

use crate::handlers::history::{TranscriptQuery, VoiceSessionQuery};
use crate::handlers::tools::{ToolListQuery, ToolRunQuery};
use crate::handlers::{agent, events, history, hooks, injections, sessions, tools};

const VOICE: &str = "Voice";
const AGENT: &str = "Voice agents";

pub(crate) fn table() -> Routes {
    Routes::new()
        .row(
            post("/v1/voice/session/start")
                .access(Access::VoiceKey)
                .summary(VOICE, "Opens a voice session: a room with an agent, and a token for one person.")
                .idempotent()
                .body::<StartVoiceSession>()
                // With the initial context.
                .max_body(16 << 20)
                .response::<VoiceStart>(200)
                .errors(&[
                    Code::Forbidden,
                    Code::IdempotencyMismatch,
                    Code::Conflict,
                    Code::SessionNotActive,
                    Code::UpstreamError,
                    Code::Unavailable,
                ])
                .handler(sessions::start),
        )
        .row(
            post("/v1/voice/session/stop")
                .access(Access::VoiceKey)
                .summary(VOICE, "Ends a voice session and deletes its room.")
                .body::<StopVoiceSession>()
                .response::<VoiceStop>(200)
                .handler(sessions::stop),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/status")
                .access(Access::VoiceKey)
                .summary(VOICE, "The status of a voice session.")
                .response::<VoiceStatus>(200)
                .errors(&[Code::NotFound])
                .handler(sessions::status),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/transcript")
                .access(Access::VoiceKey)
                .summary(VOICE, "What was said, and what the agent read. Only with the token of the session's user beside the voice key.")
                .query::<TranscriptQuery>()
                .response::<VoiceTranscript>(200)
                .errors(&[Code::NotFound])
                .handler(history::transcript),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/events")
                .access(Access::VoiceKey)
                .summary(
                    VOICE,
                    "Server-Sent Events: `status` with each change, `utterance` and `tool`. Only with the token of the \
                     session's user beside the voice key.",
                )
                .events::<VoiceSessionEvent>()
                .no_content()
                .last_event_id()
                .errors(&[Code::NotFound])
                .handler(events::stream),
        )
        .row(
            get("/v1/voice/sessions")
                .access(Access::VoiceKey)
                .summary(VOICE, "The user's voice sessions, newest first. Only with the user's token beside the voice key.")
                .query::<VoiceSessionQuery>()
                .response::<VoiceSessionPage>(200)
                .handler(history::list),
        )
        .row(
            get("/v1/voice/key")
                .access(Access::User)
                .summary(VOICE, "The voice key of this server's own page and program. 404: the server has no voice.")
                .response::<VoiceKey>(200)
                .errors(&[Code::NotFound])
                .secret()
                .handler(sessions::key),
        )
        .row(
            post("/v1/voice/session/text")
                .access(Access::VoiceKey)
                .summary(
                    VOICE,
                    "Sends a text to the agent. Texts are delivered once and in order. While 32 of a session wait \
                     (VOICE_QUEUE_MAX), the next one is 429 with Retry-After.",
                )
                .body::<SendVoiceText>()
                .alias("message")
                .response::<VoiceText>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::text),
        )
        .row(
            post("/v1/voice/session/say")
                .access(Access::VoiceKey)
                .summary(
                    VOICE,
                    "Words that the agent speaks as they are, in order with the texts and in the same queue. Only with the \
                     token of the session's user beside the voice key.",
                )
                .body::<SayVoiceText>()
                .response::<VoiceText>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::say),
        )
        .row(
            post("/v1/voice/session/context")
                .access(Access::VoiceKey)
                .summary(VOICE, "Sends the state of the application to the agent. The newest version wins.")
                .body::<SendVoiceContext>()
                .max_body(16 << 20)
                .response::<VoiceContext>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::context),
        )
        .row(
            post("/hooks/livekit")
                .access(Access::SignedRequest)
                .summary(VOICE, "Receives LiveKit's webhooks, which are signed.")
                .max_body(1 << 20)
                .response::<VoiceAgentHeard>(200)
                .handler(hooks::livekit),
        )
        .row(
            get("/agent/v1/sessions/{id}/context")
                .access(Access::SignedRequest)
                .summary(
                    AGENT,
                    "The newest context as it was sent, with its version in the header `X-Context-Version`.",
                )
                .response_as(200, "application/json")
                .errors(&[Code::NotFound])
                .handler(agent::context),
        )
        .row(
            get("/agent/v1/sessions/{id}/texts/{seq}")
                .access(Access::SignedRequest)
                .summary(AGENT, "A text that was too large for a packet.")
                .response::<VoicePulledText>(200)
                .errors(&[Code::NotFound])
                .handler(agent::text),
        )
        .row(
            post("/agent/v1/sessions/{id}/events")
                .access(Access::SignedRequest)
                .summary(AGENT, "Receives events of the agent: ready, state, transcript, error.")
                .body::<VoiceAgentEvent>()
                .max_body(512 << 10)
                .response::<VoiceAgentHeard>(200)
                .errors(&[Code::NotFound, Code::Unavailable])
                .handler(agent::event),
        )
        .row(
            get("/v1/voice/tools/runs.list")
                .access(Access::SignedRequest)
                .summary(AGENT, "The newest runs of the user, by the token of the voice session's agent.")
                .query::<ToolListQuery>()
                .response::<VoiceToolRuns>(200)
                .handler(tools::runs),
        )
        .row(
            get("/v1/voice/tools/runs.show")
                .access(Access::SignedRequest)
                .summary(AGENT, "One run of the user, by the token of the voice session's agent.")
                .query::<ToolRunQuery>()
                .response::<VoiceToolRunDetail>(200)
                .errors(&[Code::NotFound])
                .handler(tools::run),
        )
        .row(
            get("/v1/voice/tools/sessions.list")
                .access(Access::SignedRequest)
                .summary(
                    AGENT,
                    "The sessions of the user without what is sealed, by the token of the voice session's agent.",
                )
                .query::<ToolListQuery>()
                .response::<VoiceToolSessions>(200)
                .handler(tools::sessions),
        )
}
