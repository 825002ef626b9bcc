//! Voice sessions. The calls need the application's voice key, and send the user's credential if there is one.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{
    SayVoiceText, SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceContext, VoiceKey,
    VoiceStart, VoiceStatus, VoiceStop, VoiceText,
};
use ensemble_types::voice_history::{VoiceToolCall, VoiceUtterance};
use futures_util::stream::{Stream, StreamExt};
use secrecy::ExposeSecret;

use crate::error::{Error, Result};
use crate::follow::{Event, Source, follow};
use crate::retry::Repeat;
use crate::transport::Client;

/// What happens in a voice session.
#[derive(Clone, Debug)]
pub enum VoiceEvent {
    Status(Box<VoiceStatus>),
    Utterance(VoiceUtterance),
    /// The agent has read something of the user's on the server.
    Tool(VoiceToolCall),
}

impl Client {
    /// The voice key of the server's own page and program. Not found: the server has no voice.
    pub async fn voice_key(&self) -> Result<VoiceKey> {
        self.get(&["v1", "voice", "key"]).send().await
    }

    /// Starts a voice session. Check `allowed` first. The same key returns the same session with a fresh token.
    pub async fn start_voice(&self, start: &StartVoiceSession, key: &str) -> Result<VoiceStart> {
        let call = self.post(&["v1", "voice", "session", "start"], Repeat::Harmless);
        call.voice().idempotent(key).json(start).send().await
    }

    /// Ends a voice session. Succeeds also when the session has ended or never existed.
    pub async fn stop_voice(&self, stop: &StopVoiceSession) -> Result<VoiceStop> {
        self.post(&["v1", "voice", "session", "stop"], Repeat::Harmless).voice().json(stop).send().await
    }

    pub async fn voice_status(&self, id: GatewaySessionId) -> Result<VoiceStatus> {
        self.get(&["v1", "voice", "session", &id.to_string(), "status"]).voice().send().await
    }

    /// Sends a text to the agent. With a `messageId` a repetition has no effect.
    pub async fn send_voice_text(&self, text: &SendVoiceText) -> Result<VoiceText> {
        let repeat = if text.message_id.is_some() { Repeat::Harmless } else { Repeat::Harmful };
        self.post(&["v1", "voice", "session", "text"], repeat).voice().json(text).send().await
    }

    /// Has the agent speak words as they are. With a `messageId` a repetition has no effect.
    pub async fn say_voice(&self, text: &SayVoiceText) -> Result<VoiceText> {
        let repeat = if text.message_id.is_some() { Repeat::Harmless } else { Repeat::Harmful };
        self.post(&["v1", "voice", "session", "say"], repeat).voice().json(text).send().await
    }

    /// What happens in a voice session, for its user, across losses of the connection, until it is over.
    pub fn follow_voice(&self, id: GatewaySessionId) -> impl Stream<Item = Result<VoiceEvent>> + Send + use<> {
        let key = self.0.voice_key.as_ref().map(|key| ("x-voice-key", key.expose_secret().to_owned()));
        let source = Source {
            path: ["v1", "voice", "session", &id.to_string(), "events"].map(str::to_owned).to_vec(),
            headers: key.into_iter().collect(),
            ..Source::default()
        };
        follow(self.clone(), source).filter_map(|event| async move { read(event).transpose() })
    }

    /// Gives the agent new context. It replaces the previous context.
    pub async fn send_voice_context(&self, context: &SendVoiceContext) -> Result<VoiceContext> {
        self.post(&["v1", "voice", "session", "context"], Repeat::Harmless).voice().json(context).send().await
    }
}

fn read(event: Result<Event>) -> Result<Option<VoiceEvent>> {
    let event = event?;
    let unreadable = |source| Error::InvalidResponse { call: format!("event {}", event.name), source };
    Ok(match event.name.as_str() {
        "status" => Some(VoiceEvent::Status(serde_json::from_str(&event.data).map_err(unreadable)?)),
        "utterance" => Some(VoiceEvent::Utterance(serde_json::from_str(&event.data).map_err(unreadable)?)),
        "tool" => Some(VoiceEvent::Tool(serde_json::from_str(&event.data).map_err(unreadable)?)),
        // An event type of a later version.
        _ => None,
    })
}
