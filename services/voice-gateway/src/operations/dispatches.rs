//! What an agent gets with its dispatch: the metadata, and its credential for this session.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};

use crate::VoiceGateway;
use crate::domain::dispatch::{Credentials, metadata};
use crate::domain::session::VoiceSession;
use crate::error::Error;

impl VoiceGateway {
    /// The metadata of the agent's dispatch, with its credentials.
    pub(super) async fn agent_metadata(
        &self,
        session: &VoiceSession,
        context: Option<&str>,
        credential: &AgentCredential,
    ) -> Result<String, Error> {
        // A voice key proves nothing about the user, so it does not get an agent that may act as them.
        let key = self.tool_bridge_key.as_ref().filter(|_| session.user_proven);
        let tool_bridge = key.and_then(|key| key.credential(session, self.clock.now()));
        let tools = self.tools_token(session).await;
        let credentials =
            Credentials { agent: &credential.0, tools: tools.as_deref(), tool_bridge: tool_bridge.as_deref() };
        // Of three in a row two may be lost.
        let heartbeat = self.rules.agent_silent / 3;
        metadata(session, context, &credentials, (&self.public_url, heartbeat)).map_err(Error::Encode)
    }

    /// The token for the tools of this server. A conversation without them is better than none.
    async fn tools_token(&self, session: &VoiceSession) -> Option<String> {
        if !session.user_proven {
            return None;
        }
        let minted = self.directory.token(session).await;
        minted.inspect_err(|error| tracing::warn!(voice.session = %session.id, %error, "The agent gets no tools")).ok()
    }
}

/// Authenticates the agent of one session: 256 random bits, of which the database stores the digest.
pub(super) struct AgentCredential(String);

impl AgentCredential {
    pub(super) fn generate() -> Self {
        let mut bytes = [0_u8; 32];
        OsRng.fill_bytes(&mut bytes);
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}
