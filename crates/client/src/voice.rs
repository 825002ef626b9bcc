//! Voice sessions. The calls need the application's voice key, and send the user's credential if there is one.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{
    SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceContext, VoiceKey, VoiceStart,
    VoiceStatus, VoiceStop, VoiceText,
};

use crate::error::Result;
use crate::retry::Repeat;
use crate::transport::Client;

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

    /// Gives the agent new context. It replaces the previous context.
    pub async fn send_voice_context(&self, context: &SendVoiceContext) -> Result<VoiceContext> {
        self.post(&["v1", "voice", "session", "context"], Repeat::Harmless).voice().json(context).send().await
    }
}
