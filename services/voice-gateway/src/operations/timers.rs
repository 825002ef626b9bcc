//! What sessions need at their deadlines: watchdog, expiry, absences, and the deletion of rooms until it is confirmed.

use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use crate::VoiceGateway;
use crate::domain::due_action::DueAction;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::sessions;

impl VoiceGateway {
    pub(crate) async fn claim_due(&self, limit: i64, lease: Duration) -> Result<Vec<VoiceSession>, Error> {
        Ok(self.db.write("claim due voice sessions", move |tx| sessions::claim_due(tx, limit, lease)).await?)
    }

    /// Sessions with something to deliver now.
    pub(crate) async fn deliverable(&self, limit: i64) -> Result<Vec<GatewaySessionId>, Error> {
        Ok(self.db.read("list deliverable voice sessions", move |c| sessions::deliverable(c, limit)).await?)
    }

    /// The database's time, and the next deadline.
    pub(crate) async fn next_due(&self) -> Result<(Timestamp, Option<Timestamp>), Error> {
        Ok(self.db.read("find the next deadline", sessions::next_due).await?)
    }

    /// Performs the most urgent action of a session whose deadline has passed.
    pub(crate) async fn perform_due(&self, session: &VoiceSession) -> Result<(), Error> {
        let now = self.db.read("read the clock", |c| c.now()).await?;
        match session.due_action(now, &self.rules) {
            Some(DueAction::Apply(Event::HumanOverdue)) => self.end_overdue(session, now).await,
            Some(DueAction::Apply(event)) => self.apply(session.id, event).await.map(drop),
            Some(DueAction::Watch) => self.watch(session, now).await,
            Some(DueAction::Probe) => self.probe(session).await,
            Some(DueAction::CheckReady) => self.check_ready(session, now).await,
            Some(DueAction::DeleteRoom) => self.delete_room(session).await,
            // The deadline was moved in the meantime: saving the session writes it again.
            None => self.apply(session.id, Event::AgentAsked).await.map(drop),
        }
    }

    /// Records the check before it observes: if the observation fails, the next check is due later.
    async fn check_ready(&self, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
        self.apply(session.id, Event::AgentAsked).await?;
        self.observe(session, now, None).await.map(drop)
    }

    /// Observes once more before it ends the session, because the webhook of an arrival may have been lost. An unreachable
    /// LiveKit does not keep the session alive.
    async fn end_overdue(&self, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
        let seen = match self.observe(session, now, None).await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::debug!(voice.session = %session.id, %error, "A session ends without an observation");
                Some(session.clone())
            }
        };
        let overdue = Some(DueAction::Apply(Event::HumanOverdue));
        if seen.is_some_and(|seen| seen.due_action(now, &self.rules) == overdue) {
            self.apply(session.id, Event::HumanOverdue).await?;
        }
        Ok(())
    }

    /// Records the attempt first, so that another attempt follows if this process dies.
    async fn delete_room(&self, session: &VoiceSession) -> Result<(), Error> {
        self.apply(session.id, Event::DeleteBegun).await?;
        self.livekit.delete_room(&session.room_name).await.map_err(Error::RoomService)?;
        self.apply(session.id, Event::RoomDeleted).await?;
        Ok(())
    }
}
