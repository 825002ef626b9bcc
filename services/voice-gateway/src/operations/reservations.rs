//! The two transactions of a start: the one that records it within the limits, and the one that makes it live. Both hold the
//! lock of the user, so that starts of one user are decided one after the other on all replicas.

use std::sync::Weak;

use ensemble_store_kit::idempotency::IdempotencyOutcome;
use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::VoiceRefusal;

use super::change::{Saving, Transition, save};
use crate::VoiceGateway;
use crate::domain::limits::Limits;
use crate::domain::session::{NewSession, VoiceSession};
use crate::domain::state::{Event, Rules, Sid};
use crate::error::Error;
use crate::store::{locks, sessions, usage};

/// The result of recording a start.
pub(super) enum Reservation {
    New(Box<VoiceSession>),
    /// The same request was recorded before, as this session.
    Replay(GatewaySessionId),
    /// The key was used with another body.
    Mismatch,
}

/// Why nothing was recorded. It rolls the transaction back, and the idempotency key with it.
pub(super) enum NotReserved {
    Refused(VoiceRefusal),
    /// The user's token started the session that this start would replace, and it has none.
    StartedByUser,
    Store(StoreError),
}

impl From<StoreError> for NotReserved {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl VoiceGateway {
    pub(super) async fn reserve(&self, new: NewSession) -> Result<Reservation, NotReserved> {
        let (limits, rules) = (self.limits.clone(), self.rules.clone());
        let reserved = self.db.write("reserve a voice session", move |tx| reserve(tx, &new, &limits, &rules)).await?;
        if let Reservation::New(session) = &reserved
            && let Some(due_at) = session.due_at(&self.rules)
        {
            self.wakeups.due(due_at);
        }
        Ok(reserved)
    }

    /// Makes the session live and ends the one that it replaces. `None`: the session has ended in the meantime.
    pub(super) async fn go_live(
        &self,
        session: &VoiceSession,
        sid: Sid,
        caller: Weak<()>,
    ) -> Result<Option<VoiceSession>, Error> {
        let (id, user, saving) = (session.id, session.user_id.clone(), self.saving());
        let transitions = self
            .db
            .write("let a voice session go live", move |tx| {
                locks::lock_user(tx, &user)?;
                let transitions = go_live(tx, id, sid.clone(), &saving)?;
                // The last check before the commit.
                if caller.strong_count() == 0 { Err(Error::CallerGone) } else { Ok(transitions) }
            })
            .await?;
        transitions.iter().for_each(|transition| self.publish(transition));
        Ok(transitions.into_iter().last().map(|transition| transition.after))
    }
}

/// Records a start once per idempotency key and within the limits, while its user is locked.
fn reserve(tx: &mut Conn, new: &NewSession, limits: &Limits, rules: &Rules) -> Result<Reservation, NotReserved> {
    let mut session = new.session.clone();
    locks::lock_user(tx, &session.user_id)?;
    if let Some(key) = new.key.clone() {
        match sessions::claim_key(tx, &session, key)? {
            IdempotencyOutcome::New => {}
            IdempotencyOutcome::Mismatch => return Ok(Reservation::Mismatch),
            IdempotencyOutcome::Replay { resource } => {
                let id = resource.parse().map_err(|error| StoreError::bad_row(tx.operation(), error))?;
                return Ok(Reservation::Replay(id));
            }
        }
    }
    // A start with the user's token replaces every session, so it need not look.
    if !session.user_proven
        && sessions::lock_live_of_same_pair(tx, &session)?.iter().any(|live| live.session.is_kept_from(&session))
    {
        return Err(NotReserved::StartedByUser);
    }
    let now = tx.now()?;
    let mut used = usage::count(tx, &session, limits, now)?;
    if limits.is_near_total(&used) {
        locks::lock_total(tx)?;
        usage::count_sessions(tx, &session, limits, &mut used)?;
    }
    let granted = limits.grant(used).map_err(NotReserved::Refused)?;
    session.begin(now, granted, rules);
    sessions::insert(tx, new, &session, rules)?;
    Ok(Reservation::New(Box::new(session)))
}

/// The sessions that changed, the new one last; none when the new one has ended already.
fn go_live(tx: &mut Conn, id: GatewaySessionId, sid: Sid, saving: &Saving) -> Result<Vec<Transition>, Error> {
    let Some((mut stored, now)) = sessions::lock(tx, id)? else { return Ok(Vec::new()) };
    let rules = &saving.rules;
    let before = stored.session.clone();
    if stored.session.apply(Event::RoomUp { sid }, now, rules).is_err() {
        return Ok(Vec::new());
    }
    let mut transitions = Vec::new();
    for mut replaced in sessions::lock_live_of_same_pair(tx, &stored.session)? {
        if replaced.session.is_kept_from(&stored.session) {
            return Err(Error::StartedByUser);
        }
        let before = replaced.session.clone();
        if replaced.session.apply(Event::Replaced, now, rules).is_ok() {
            transitions.push(save(tx, before, replaced, now, saving)?);
        }
    }
    transitions.push(save(tx, before, stored, now, saving)?);
    Ok(transitions)
}
