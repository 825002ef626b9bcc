//! Voice sessions. Wants the application's voice key; a user's credential, when there is one, goes along.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{
    SendVoiceContext, SendVoiceText, StartVoiceSession, StopVoiceSession, VoiceContext, VoiceStart, VoiceStatus,
    VoiceStop, VoiceText,
};

use crate::error::Result;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// Opens a room. Look at `allowed` first. The same key gives the same voice session, with a fresh token.
    pub async fn start_voice(&self, start: &StartVoiceSession, key: &str) -> Result<VoiceStart> {
        let call = self.post(&["v1", "voice", "session", "start"], Repeat::Harmless);
        call.voice().idempotent(key).json(start).send().await
    }

    /// Ends a voice session. Stopping what has stopped, or never was, is fine too.
    pub async fn stop_voice(&self, stop: &StopVoiceSession) -> Result<VoiceStop> {
        self.post(&["v1", "voice", "session", "stop"], Repeat::Harmless).voice().json(stop).send().await
    }

    pub async fn voice_status(&self, id: GatewaySessionId) -> Result<VoiceStatus> {
        self.get(&["v1", "voice", "session", &id.to_string(), "status"]).voice().send().await
    }

    /// Says something to the agent. With a `messageId` it may be sent again and is said once.
    pub async fn send_voice_text(&self, text: &SendVoiceText) -> Result<VoiceText> {
        let repeat = if text.message_id.is_some() { Repeat::Harmless } else { Repeat::Harmful };
        self.post(&["v1", "voice", "session", "text"], repeat).voice().json(text).send().await
    }

    /// Gives the agent what it should know now; the newest context wins.
    pub async fn send_voice_context(&self, context: &SendVoiceContext) -> Result<VoiceContext> {
        self.post(&["v1", "voice", "session", "context"], Repeat::Harmless).voice().json(context).send().await
    }
}
