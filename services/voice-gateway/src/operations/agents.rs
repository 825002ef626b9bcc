//! Calls of the agent: it fetches what is too large for a packet, and reports its state.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::text::Blob;
use ensemble_types::voice::{VoiceAgentEvent, VoicePulledText};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::VoiceGateway;
use crate::domain::history::Utterance;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, State};
use crate::error::Error;
use crate::store::contexts::{self, StoredContext};
use crate::store::{sessions, texts};

/// An agent that has shown its credential.
pub(crate) struct AgentCaller {
    session: VoiceSession,
    /// It is of the last dispatch.
    is_newest: bool,
}

impl VoiceGateway {
    /// The session of this credential. A wrong credential, an unknown session and a session that is over are the same error.
    pub(crate) async fn authenticate_agent(&self, id: GatewaySessionId, token: &str) -> Result<AgentCaller, Error> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let found = self.db.read("authenticate an agent", move |c| sessions::read(c, id)).await?;
        let (stored, _) = found.ok_or(Error::Unauthenticated)?;
        let before = stored.agent_token_before.unwrap_or_default();
        let (is_newest, is_before) = (stored.agent_token.ct_eq(&digest), before.ct_eq(&digest));
        if bool::from(is_newest | is_before) && !stored.session.is_over() {
            Ok(AgentCaller { session: stored.session, is_newest: is_newest.into() })
        } else {
            Err(Error::Unauthenticated)
        }
    }

    /// The newest context. It counts as delivered from now on.
    pub(crate) async fn fetch_context(&self, id: GatewaySessionId) -> Result<StoredContext, Error> {
        let change = self
            .change("fetch a context", id, move |tx, stored, _| {
                let context = contexts::get(tx, id)?;
                let context = context.unwrap_or_else(|| StoredContext { version: 0, body: "{}".to_owned() });
                stored.session.context.was_delivered(context.version);
                Ok(context)
            })
            .await?;
        change.map(|change| change.result).ok_or(Error::Unauthenticated)
    }

    pub(crate) async fn fetch_text(&self, id: GatewaySessionId, seq: i64) -> Result<VoicePulledText, Error> {
        let found = self.db.read("fetch a text", move |c| texts::body(c, id, seq)).await?;
        let (message_id, text) = found.ok_or(Error::Unknown("found"))?;
        let text = Blob::new(text).map_err(|_| Error::Unknown("found"))?;
        Ok(VoicePulledText { id: message_id, seq: u64::try_from(seq).unwrap_or(0), text })
    }

    pub(crate) async fn take_agent_event(&self, caller: &AgentCaller, event: VoiceAgentEvent) -> Result<(), Error> {
        let session = &caller.session;
        let id = session.id;
        match event {
            VoiceAgentEvent::Ready => {
                self.metrics.agent_event("ready");
                if matches!(session.state, State::Creating { .. }) {
                    return Err(Error::TooEarly);
                }
                self.apply(id, Event::AgentReady).await?;
            }
            VoiceAgentEvent::Heartbeat => {
                self.metrics.agent_event("heartbeat");
                // That of an agent which was replaced says nothing about the one that is there.
                if caller.is_newest {
                    self.apply(id, Event::AgentBeat).await?;
                }
            }
            VoiceAgentEvent::State { state } => {
                self.metrics.agent_event("state");
                let state = state.into_string();
                self.change("record an agent's state", id, move |_, stored, _| {
                    stored.session.agent_state = Some(state.clone());
                    Ok(())
                })
                .await?;
            }
            VoiceAgentEvent::Transcript { role, text, id: agent_id } => {
                self.metrics.agent_event("transcript");
                let agent_id = agent_id.map(|id| id.into_string());
                self.record_utterance(id, Utterance::new(role.into_string(), text.into_string(), agent_id)).await?;
            }
            VoiceAgentEvent::Error { code, message } => {
                // The error's text may contain what was said, so it is not logged.
                self.metrics.agent_event("error");
                tracing::warn!(voice.session = %id, "The agent reported an error");
                let message = message.map(|text| text.into_string());
                self.record_agent_error(id, code.into_string(), message).await?;
            }
        }
        Ok(())
    }
}
