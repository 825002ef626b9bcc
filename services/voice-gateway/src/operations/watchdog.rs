//! The watchdog: dispatches the agent again when it has not come or has left.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use tokio::time::Instant;

use super::dispatches::AgentCredential;
use crate::VoiceGateway;
use crate::absence::Advice;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, Human};
use crate::error::Error;
use crate::store::contexts;

impl VoiceGateway {
    /// Looks at the participants first, because every dispatch brings one more agent. Only one replica may look, so that
    /// two of them do not dispatch two agents.
    pub(super) async fn watch(&self, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
        let Some((session, true)) = self.apply(session.id, Event::WatchBegun).await? else { return Ok(()) };
        // An unreachable LiveKit does not use up an attempt: the watchdog looks again later.
        let Some(seen) = self.observe(&session, now, None).await? else { return Ok(()) };
        let Some(live) = seen.state.live().filter(|live| live.agent.is_awaited()) else { return Ok(()) };
        if matches!(live.human, Human::Away { .. }) {
            // Without the person no agent is needed; agents often leave because the person left.
            return Ok(());
        }
        if live.redispatches == 0 {
            self.absences.missed(&seen.agent_name, live.room_created_at, now);
        }
        let waits = self.absences.advice(&seen.agent_name, Instant::now()) == Advice::Wait;
        // As long as all dispatches together would have taken.
        let attempts = self.rules.agent_join.saturating_mul(self.rules.max_dispatches.saturating_add(1));
        if waits && live.room_created_at.plus(attempts) > now {
            return Ok(());
        }
        if waits || live.redispatches >= self.rules.max_dispatches {
            tracing::warn!(voice.session = %session.id, agent = session.agent_name, "No agent came");
            self.apply(session.id, Event::AgentUnavailable).await?;
            return Ok(());
        }
        self.dispatch_again(&seen).await
    }

    async fn dispatch_again(&self, session: &VoiceSession) -> Result<(), Error> {
        let credential = AgentCredential::generate();
        let Some((session, context)) = self.record_redispatch(session.id, credential.digest()).await? else {
            return Ok(());
        };
        self.metrics.redispatched();
        tracing::info!(voice.session = %session.id, agent = session.agent_name, "Dispatching an agent again");
        let metadata = self.agent_metadata(&session, context.as_deref(), &credential).await?;
        if let Err(error) = self.livekit.delete_idle_dispatches(&session.room_name).await {
            // A worker that registers late may then take the old dispatch as well. Only the newest agent is used.
            tracing::debug!(voice.session = %session.id, %error, "Old dispatches could not be deleted");
        }
        self.livekit
            .create_dispatch(&session.room_name, &session.agent_name, metadata)
            .await
            .map_err(Error::RoomService)
    }

    /// Counts a dispatch, replaces the agent's credential, and gives the session with the context for the agent. `None`:
    /// the agent has come in the meantime, or no attempt is left.
    async fn record_redispatch(
        &self,
        id: GatewaySessionId,
        agent_token: [u8; 32],
    ) -> Result<Option<(VoiceSession, Option<String>)>, Error> {
        let (rules, inline_max) = (self.rules.clone(), self.delivery.dispatch_inline_max);
        let change = self
            .change("dispatch an agent again", id, move |tx, stored, now| {
                if stored.session.apply(Event::Redispatched, now, &rules).is_err() {
                    return Ok(None);
                }
                let before = std::mem::replace(&mut stored.agent_token, agent_token.to_vec());
                stored.agent_token_before = Some(before);
                let context = contexts::get(tx, id)?;
                let inline = context.as_ref().is_some_and(|context| context.body.len() <= inline_max);
                stored.session.context.dispatched(inline);
                Ok(Some(context.map(|context| context.body)))
            })
            .await?;
        Ok(change.and_then(|change| change.result.map(|context| (change.transition.after, context))))
    }
}
