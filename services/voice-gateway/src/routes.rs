//! The table of routes: method, path, access, shapes, errors, handler.

use ensemble_chassis::{Access, Routes, Tag, get, post};
use ensemble_types::events::VoiceSessionEvent;
use ensemble_types::problem::Code;
use ensemble_types::voice::{
    SayVoiceText, SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceAgentEvent,
    VoiceAgentReceipt, VoiceContext, VoiceKey, VoicePulledText, VoiceStart, VoiceStatus, VoiceStop, VoiceText,
};
use ensemble_types::voice_history::{VoiceSessionPage, VoiceTranscript};
use ensemble_types::voice_tools::{VoiceToolRunDetail, VoiceToolRuns, VoiceToolSessions};

use crate::handlers::history::{TranscriptQuery, VoiceSessionQuery};
use crate::handlers::tools::{ToolListQuery, ToolRunQuery};
use crate::handlers::{agent, events, history, hooks, injections, sessions, tools};

const VOICE: Tag = Tag("Voice", "Talking to an agent.");
const AGENT: Tag = Tag("Voice agents", "What the agent in the room of a voice session calls.");

pub(crate) fn table() -> Routes {
    Routes::new()
        .row(
            post("/v1/voice/session/start")
                .access(Access::VoiceKey)
                .operation(VOICE, "startVoiceSession", "Opens a voice session: a room with an agent, and a token for one person.")
.about("Where a limit does not allow it, the answer is 200 with `allowed: false` and a reason. \
                     Without an `Idempotency-Key`, a second start for the same user and session replaces the \
                     first.")
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
                .operation(VOICE, "stopVoiceSession", "Ends a voice session and deletes its room.")
.about("Also succeeds when the voice session is unknown or has ended.")
                .body::<StopVoiceSession>()
                .response::<VoiceStop>(200)
                .handler(sessions::stop),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/status")
                .access(Access::VoiceKey)
                .operation(VOICE, "getVoiceSession", "The status of a voice session.")
.about("`live` says that LiveKit has confirmed the state within the last seconds. The answer \
                     never has the token or the context.")
                .response::<VoiceStatus>(200)
                .errors(&[Code::NotFound])
                .handler(sessions::status),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/transcript")
                .access(Access::VoicePerson)
                .operation(VOICE, "getVoiceTranscript", "What was said, and what the agent read. Requires the token of the session's user in addition \
                     to the voice key.")
.about("It is kept until ten minutes after the end of the voice session.")
                .query::<TranscriptQuery>()
                .response::<VoiceTranscript>(200)
                .errors(&[Code::NotFound])
                .handler(history::transcript),
        )
        .row(
            get("/v1/voice/session/{gatewaySessionId}/events")
                .access(Access::VoicePerson)
                .operation(VOICE, "followVoiceSession", "Server-Sent Events: `status` with each change, `utterance` and `tool`. Requires the token of the \
                     session's user in addition to the voice key.",
                )
.about("From the beginning, or after the event that `Last-Event-ID` names.")
                .events::<VoiceSessionEvent>()
                .also_by_post("followVoiceSessionByPost")
                .no_content()
                .last_event_id()
                .errors(&[Code::NotFound])
                .handler(events::stream),
        )
        .row(
            get("/v1/voice/sessions")
                .access(Access::VoicePerson)
                .operation(VOICE, "listVoiceSessions", "The user's voice sessions, newest first. Requires the user's token in addition to the voice key.")
.about("Each with its state and how long it lasted, without what was said.")
                .query::<VoiceSessionQuery>()
                .response::<VoiceSessionPage>(200)
                .errors(&[Code::InvalidCursor])
                .handler(history::list),
        )
        .row(
            get("/v1/voice/key")
                .access(Access::User)
                .operation(VOICE, "getVoiceKey", "The voice key of this server's own page and program. 404: the server has no voice.")
.about("The key counts only together with a user's token.")
                .response::<VoiceKey>(200)
                .errors(&[Code::NotFound])
                .secret()
                .handler(sessions::key),
        )
        .row(
            post("/v1/voice/session/text")
                .access(Access::VoiceKey)
                .operation(VOICE, "sendVoiceText", "Sends a text to the agent. Texts are delivered once and in order. While 32 of a session wait \
                     (VOICE_QUEUE_MAX), the next one is 429 with Retry-After.",
                )
.about("A repeat with the same `messageId` is delivered once.")
                .body::<SendVoiceText>()
                .alias("message")
                .response::<VoiceText>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::text),
        )
        .row(
            post("/v1/voice/session/say")
                .access(Access::VoicePerson)
                .operation(VOICE, "sayVoiceText", "Words that the agent speaks as they are, in order with the texts and in the same queue. Requires the \
                     token of the session's user in addition to the voice key.",
                )
.about("The agent does not think about the words and does not change them. With `interrupt` it \
                     stops what it is saying.")
                .body::<SayVoiceText>()
                .response::<VoiceText>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::say),
        )
        .row(
            post("/v1/voice/session/context")
                .access(Access::VoiceKey)
                .operation(VOICE, "sendVoiceContext", "Sends the state of the application to the agent. The newest version wins.")
.about("The payload is passed on as it was sent. What is too large for a packet, the agent fetches.")
                .body::<SendVoiceContext>()
                .max_body(16 << 20)
                .response::<VoiceContext>(200)
                .errors(&[Code::NotFound, Code::SessionNotActive, Code::RateLimited])
                .handler(injections::context),
        )
        .row(
            post("/hooks/livekit")
                .access(Access::Webhook)
                .operation(VOICE, "receiveLivekitWebhook", "Receives LiveKit's webhooks, which are signed.")
.about("Set this address in LiveKit's configuration. The body is LiveKit's `WebhookEvent`.")
                .max_body(1 << 20)
                .response::<VoiceAgentReceipt>(200)
                .handler(hooks::livekit),
        )
        .row(
            get("/agent/v1/sessions/{id}/context")
                .access(Access::VoiceAgent)
                .operation(AGENT, "getAgentContext", "The newest context as it was sent, with its version in the header `X-Context-Version`.",
                )
.about("For the agent of this voice session only. 404 while there is no context.")
                .context_version()
.response_as(200, "application/json", "The context, as the application sent it.")
                .errors(&[Code::NotFound])
                .handler(agent::context),
        )
        .row(
            get("/agent/v1/sessions/{id}/texts/{seq}")
                .access(Access::VoiceAgent)
                .operation(AGENT, "getAgentText", "A text that was too large for a packet.")
.about("For the agent of this voice session only.")
                .response::<VoicePulledText>(200)
                .errors(&[Code::NotFound])
                .handler(agent::text),
        )
        .row(
            post("/agent/v1/sessions/{id}/events")
                .access(Access::VoiceAgent)
                .operation(AGENT, "sendAgentEvent", "Receives events of the agent: ready, state, transcript, error.")
.about("For the agent of this voice session only. The first event is `ready`.")
                .body::<VoiceAgentEvent>()
                .max_body(512 << 10)
                .response::<VoiceAgentReceipt>(200)
                .errors(&[Code::NotFound, Code::Unavailable])
                .handler(agent::event),
        )
        .row(
            get("/v1/voice/tools/runs.list")
                .access(Access::VoiceAgent)
                .operation(AGENT, "listVoiceToolRuns", "The newest runs of the user, by the token of the voice session's agent.")
.about("In brief, so that a language model can read it.")
                .query::<ToolListQuery>()
                .response::<VoiceToolRuns>(200)
                .handler(tools::runs),
        )
        .row(
            get("/v1/voice/tools/runs.show")
                .access(Access::VoiceAgent)
                .operation(AGENT, "getVoiceToolRun", "One run of the user, by the token of the voice session's agent.")
.about("In brief, so that a language model can read it.")
                .query::<ToolRunQuery>()
                .response::<VoiceToolRunDetail>(200)
                .errors(&[Code::NotFound])
                .handler(tools::run),
        )
        .row(
            get("/v1/voice/tools/sessions.list")
                .access(Access::VoiceAgent)
                .operation(AGENT, "listVoiceToolSessions", "The sessions of the user without what is sealed, by the token of the voice session's agent.",
                )
.about("In brief, so that a language model can read it.")
                .query::<ToolListQuery>()
                .response::<VoiceToolSessions>(200)
                .handler(tools::sessions),
        )
}
