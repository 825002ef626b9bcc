//! Loading and changing one session.

use std::sync::{Arc, Mutex, PoisonError};

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use subtle::ConstantTimeEq;

use super::rows::{Loaded, is_live, lock, read, reason, save, voice_contexts, voice_sessions};
use super::{Nudge, Store};
use crate::domain::observation::Observation;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Agent, Event, Refused, Rules};

/// How often a change is tried that a unique constraint refuses.
const TRIES: u32 = 3;

/// A session as it was read, with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) session: VoiceSession,
    /// Texts that have not reached the agent.
    pub(crate) queued: u64,
    /// The database's time of reading.
    pub(crate) now: Timestamp,
}

/// A context and its version; version 0 when there is none.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) version: i64,
    pub(crate) body: String,
}

/// A change that is on its way: what it found, and what it made of it.
pub(super) struct Change<T> {
    pub(super) result: T,
    pub(super) before: VoiceSession,
    pub(super) after: VoiceSession,
    /// Other sessions that ended through it, before and after.
    pub(super) replaced: Vec<(VoiceSession, VoiceSession)>,
    pub(super) nudges: Vec<Nudge>,
}

impl Store {
    pub(crate) async fn find(&self, id: GatewaySessionId) -> Result<Option<Found>, StoreError> {
        self.db
            .read("read a voice session", move |c| {
                let Some((loaded, now)) = read(c, id)? else { return Ok(None) };
                let queued = u64::try_from(loaded.queued).unwrap_or(0);
                Ok(Some(Found { session: loaded.session, queued, now }))
            })
            .await
    }

    /// Lets an event happen. `None`: there is no such session. The flag: whether the event changed anything.
    pub(crate) async fn apply(
        &self,
        id: GatewaySessionId,
        event: Event,
    ) -> Result<Option<(VoiceSession, bool)>, StoreError> {
        let rules = self.rules.clone();
        let applied = self
            .change("change a voice session", id, move |_, loaded, now| {
                Ok(loaded.session.apply(event.clone(), now, &rules).is_ok())
            })
            .await?;
        Ok(applied.map(|change| (change.after, change.result)))
    }

    /// Ends a session, and counts the first attempt to delete its room, which the caller is about to make.
    pub(crate) async fn end(
        &self,
        id: GatewaySessionId,
        event: Event,
    ) -> Result<Option<(VoiceSession, bool)>, StoreError> {
        let rules = self.rules.clone();
        let ended = self
            .change("end a voice session", id, move |_, loaded, now| {
                let ended = loaded.session.apply(event.clone(), now, &rules).is_ok();
                Ok(ended && loaded.session.apply(Event::DeleteBegun, now, &rules).is_ok())
            })
            .await?;
        Ok(ended.map(|change| (change.after, change.result)))
    }

    /// Takes over what a look at LiveKit showed.
    pub(crate) async fn observe(
        &self,
        id: GatewaySessionId,
        seen: Observation,
    ) -> Result<Option<VoiceSession>, StoreError> {
        let rules = self.rules.clone();
        let observed = self
            .change("observe a voice session", id, move |_, loaded, now| {
                for event in loaded.session.differences(&seen, &rules) {
                    // An event that the one before has settled is refused, and rightly.
                    let _: Result<(), Refused> = loaded.session.apply(event, now, &rules);
                }
                loaded.session.observed_at = loaded.session.observed_at.max(Some(seen.asked_at));
                Ok(())
            })
            .await?;
        Ok(observed.map(|change| change.after))
    }

    /// Lets the agent be dispatched once more: counts it, replaces its credential, and gives the session with the context
    /// that goes along. `None` when the agent has come in the meantime, or no attempt is left.
    pub(crate) async fn redispatch(
        &self,
        id: GatewaySessionId,
        agent_token: [u8; 32],
        inline_max: usize,
    ) -> Result<Option<(VoiceSession, Option<String>)>, StoreError> {
        let rules = self.rules.clone();
        let change = self
            .change("dispatch an agent again", id, move |tx, loaded, now| {
                if loaded.session.apply(Event::Redispatched, now, &rules).is_err() {
                    return Ok(None);
                }
                let before = std::mem::replace(&mut loaded.agent_token, agent_token.to_vec());
                loaded.agent_token_before = Some(before);
                let context = context(tx, id)?;
                let inline = context.as_ref().is_some_and(|context| context.body.len() <= inline_max);
                loaded.session.context.dispatched(inline);
                Ok(Some(context.map(|context| context.body)))
            })
            .await?;
        Ok(change.and_then(|change| change.result.map(|context| (change.after, context))))
    }

    /// The session that an agent's credential opens. A wrong one and an unknown session look the same.
    pub(crate) async fn open_agent_door(
        &self,
        id: GatewaySessionId,
        token: [u8; 32],
    ) -> Result<Option<VoiceSession>, StoreError> {
        self.db
            .read("open the agent's door", move |c| {
                let Some((loaded, _)) = read(c, id)? else { return Ok(None) };
                let before = loaded.agent_token_before.unwrap_or_default();
                let fits = loaded.agent_token.ct_eq(&token) | before.ct_eq(&token);
                Ok((bool::from(fits) && !loaded.session.is_over()).then_some(loaded.session))
            })
            .await
    }

    /// The newest context, for the agent that fetches it, who has it from now on.
    pub(crate) async fn take_context(&self, id: GatewaySessionId) -> Result<Option<Reading>, StoreError> {
        let change = self
            .change("fetch a context", id, move |tx, loaded, _| {
                let reading = context(tx, id)?.unwrap_or_else(|| Reading { version: 0, body: "{}".to_owned() });
                loaded.session.context.was_delivered(reading.version);
                Ok(reading)
            })
            .await?;
        Ok(change.map(|change| change.result))
    }

    /// What the agent says of itself.
    pub(crate) async fn set_agent_state(&self, id: GatewaySessionId, state: String) -> Result<(), StoreError> {
        self.change("note an agent's state", id, move |_, loaded, _| {
            loaded.session.agent_state = Some(state.clone());
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Locks, changes, saves, and tells those who wait.
    pub(super) async fn change<T, F>(
        &self,
        operation: &'static str,
        id: GatewaySessionId,
        f: F,
    ) -> Result<Option<Change<T>>, StoreError>
    where
        F: FnMut(&mut Conn, &mut Loaded, Timestamp) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let rules = self.rules.clone();
        let f = Arc::new(Mutex::new(f));
        let mut tries = 0;
        let changed = loop {
            let (rules, f) = (rules.clone(), Arc::clone(&f));
            let changed = self
                .db
                .write(operation, move |tx| {
                    let mut f = f.lock().unwrap_or_else(PoisonError::into_inner);
                    change_in(tx, id, &rules, &mut *f)
                })
                .await;
            tries += 1;
            match changed {
                // Two starts for one session went live at the same moment: the second one now sees the first.
                Err(StoreError::Duplicate { .. }) if tries < TRIES => {}
                other => break other?,
            }
        };
        if let Some(change) = &changed {
            self.tell(change);
        }
        Ok(changed)
    }

    /// What follows from a change that is committed: nudges and numbers.
    pub(super) fn tell<T>(&self, change: &Change<T>) {
        for (before, after) in change.replaced.iter().chain([(change.before.clone(), change.after.clone())].iter()) {
            self.tell_one(before, after);
        }
        for nudge in &change.nudges {
            self.nudges.send(*nudge);
        }
    }

    fn tell_one(&self, before: &VoiceSession, after: &VoiceSession) {
        if let (false, Some(end)) = (before.is_over(), after.state.end()) {
            self.metrics.ended(reason(end.reason));
            tracing::info!(voice.session = %after.id, reason = reason(end.reason), "A voice session ended");
        }
        if let (None, Some(active_at)) = (before.state.active_at(), after.state.active_at()) {
            self.metrics.became_active(active_at.since(after.created_at));
            tracing::info!(voice.session = %after.id, "A voice session became active");
        }
        if let (None, Some(_), Some(live)) = (before.reachable_agent(), after.reachable_agent(), after.state.live())
            && live.redispatches == 0
            && let Agent::Ready { ready_at, .. } = &live.agent
        {
            self.metrics.agent_came(ready_at.since(live.room_created_at));
        }
    }
}

/// One change in a transaction.
pub(super) fn change_in<T>(
    tx: &mut Conn,
    id: GatewaySessionId,
    rules: &Rules,
    f: &mut impl FnMut(&mut Conn, &mut Loaded, Timestamp) -> Result<T, StoreError>,
) -> Result<Option<Change<T>>, StoreError> {
    let Some((mut loaded, now)) = lock(tx, id)? else { return Ok(None) };
    let before = loaded.session.clone();
    let result = f(tx, &mut loaded, now)?;
    let goes_live = before.state.live().is_none() && loaded.session.state.live().is_some();
    let (replaced, mut nudges) =
        if goes_live { replace_others(tx, &loaded.session, now, rules)? } else { Default::default() };
    nudges.extend(save(tx, &before, &mut loaded, now, rules)?);
    Ok(Some(Change { result, before, after: loaded.session, replaced, nudges }))
}

type Replaced = (Vec<(VoiceSession, VoiceSession)>, Vec<Nudge>);

/// Ends whatever was live for the same user and session, in the moment in which the new one goes live and no earlier: a
/// start that fails must not end the conversation that is going on.
fn replace_others(
    tx: &mut Conn,
    newcomer: &VoiceSession,
    now: Timestamp,
    rules: &Rules,
) -> Result<Replaced, StoreError> {
    use voice_sessions::dsl;
    let others: Vec<GatewaySessionId> = on!(tx, |c| dsl::voice_sessions
        .filter(dsl::user_id.eq(&newcomer.user_id).and(dsl::session_id.eq(&newcomer.session_id)))
        .filter(dsl::id.ne(newcomer.id.db()).and(is_live()))
        .select(dsl::id)
        .load(c))?;
    let (mut replaced, mut nudges) = (Vec::new(), Vec::new());
    for id in others {
        let Some((mut loaded, _)) = lock(tx, id)? else { continue };
        let before = loaded.session.clone();
        if loaded.session.apply(Event::Replaced, now, rules).is_ok() {
            nudges.extend(save(tx, &before, &mut loaded, now, rules)?);
            replaced.push((before, loaded.session));
        }
    }
    Ok((replaced, nudges))
}

/// The newest context of a session.
pub(super) fn context(c: &mut Conn, id: GatewaySessionId) -> Result<Option<Reading>, StoreError> {
    let row: Option<(i64, String)> = on!(c, |c| voice_contexts::table
        .find(id.db())
        .select((voice_contexts::version, voice_contexts::body))
        .first(c)
        .optional())?;
    Ok(row.map(|(version, body)| Reading { version, body }))
}
