//! One change of one session in one transaction, and what follows from it after the commit: wake-ups, metrics and a log
//! line. Other replicas find the change in the database when their timers sweep.

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use super::webhook_deliveries;
use crate::VoiceGateway;
use crate::domain::endpoint::Endpoints;
use crate::domain::session::{VoiceSession, end_reason_name};
use crate::domain::state::{Agent, Event, Rules};
use crate::error::Error;
use crate::store::{StoredSession, sessions};

/// A change that is committed, with what its closure returned.
pub(super) struct Change<T> {
    pub(super) result: T,
    pub(super) transition: Transition,
}

/// What saving a session needs in addition to the session.
#[derive(Clone)]
pub(super) struct Saving {
    pub(super) rules: Rules,
    endpoints: Endpoints,
}

/// One session before and after.
pub(super) struct Transition {
    pub(super) before: VoiceSession,
    pub(super) after: VoiceSession,
    due_at: Option<Timestamp>,
    deliver_now: bool,
}

impl VoiceGateway {
    /// Applies an event. `None`: there is no such session. The flag says whether the event changed anything.
    pub(crate) async fn apply(
        &self,
        id: GatewaySessionId,
        event: Event,
    ) -> Result<Option<(VoiceSession, bool)>, Error> {
        let rules = self.rules.clone();
        let applied = self
            .change("change a voice session", id, move |_, stored, now| {
                Ok(stored.session.apply(event.clone(), now, &rules).is_ok())
            })
            .await?;
        Ok(applied.map(|change| (change.transition.after, change.result)))
    }

    pub(super) fn saving(&self) -> Saving {
        Saving { rules: self.rules.clone(), endpoints: self.webhooks.endpoints.clone() }
    }

    /// Locks a session, changes it with `f`, saves it, and publishes the change.
    pub(super) async fn change<T, F>(
        &self,
        operation: &'static str,
        id: GatewaySessionId,
        mut f: F,
    ) -> Result<Option<Change<T>>, Error>
    where
        F: FnMut(&mut Conn, &mut StoredSession, Timestamp) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        let saving = self.saving();
        let changed = self.db.write(operation, move |tx| change_in(tx, id, &saving, &mut f)).await?;
        if let Some(change) = &changed {
            self.publish(&change.transition);
        }
        Ok(changed)
    }

    /// Wakes the loops of this process and counts what happened.
    pub(super) fn publish(&self, Transition { before, after, due_at, deliver_now }: &Transition) {
        if let Some(at) = due_at {
            self.wakeups.due(*at);
        }
        if *deliver_now {
            self.wakeups.deliver(after.id);
        }
        if let (false, Some(end)) = (before.is_over(), after.state.end()) {
            let reason = end_reason_name(end.reason);
            self.metrics.ended(reason);
            tracing::info!(voice.session = %after.id, reason, "A voice session ended");
        }
        if let (None, Some(active_at)) = (before.state.active_at(), after.state.active_at()) {
            self.metrics.became_active(active_at.since(after.created_at));
            tracing::info!(voice.session = %after.id, "A voice session became active");
        }
        let present = |session: &VoiceSession| session.state.live().and_then(|live| live.agent.since());
        if let (None, Some(since)) = (present(before), present(after)) {
            self.absences.came(&after.agent_name, since);
        }
        if let (None, Some(_), Some(live)) = (before.reachable_agent(), after.reachable_agent(), after.state.live())
            && live.redispatches == 0
            && let Agent::Ready { ready_at, .. } = &live.agent
        {
            self.metrics.agent_became_ready(ready_at.since(live.room_created_at));
        }
    }
}

/// The same inside a transaction that does more than this.
pub(super) fn change_in<T>(
    tx: &mut Conn,
    id: GatewaySessionId,
    saving: &Saving,
    f: &mut impl FnMut(&mut Conn, &mut StoredSession, Timestamp) -> Result<T, Error>,
) -> Result<Option<Change<T>>, Error> {
    let Some((mut stored, now)) = sessions::lock(tx, id)? else { return Ok(None) };
    let before = stored.session.clone();
    let result = f(tx, &mut stored, now)?;
    Ok(Some(Change { result, transition: save(tx, before, stored, now, saving)? }))
}

/// Saves a locked session that has been changed.
pub(super) fn save(
    tx: &mut Conn,
    before: VoiceSession,
    mut stored: StoredSession,
    now: Timestamp,
    Saving { rules, endpoints }: &Saving,
) -> Result<Transition, StoreError> {
    sessions::save(tx, &before, &mut stored, now, rules)?;
    webhook_deliveries::store(tx, (&before, &stored.session), endpoints, now)?;
    let due_at = stored.session.due_at(rules);
    Ok(Transition { before, due_at, deliver_now: stored.deliver_at == Some(now), after: stored.session })
}
