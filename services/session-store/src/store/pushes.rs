//! The table `pushes`: what identity still has to be given for the devices of an owner.

use diesel::prelude::*;
use ensemble_store_kit::types::{DbTime, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::pushes::PushKind;
use ensemble_types::time::Timestamp;

use super::schema::{pushes, sessions};

/// An event to give. An empty kind takes one back.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = pushes)]
pub(crate) struct Push {
    pub(crate) session_id: SessionId,
    pub(crate) attention: String,
    pub(crate) owner_id: UserId,
    pub(crate) kind: String,
}

/// Has an event given at this time.
pub(crate) fn insert(tx: &mut Conn, push: &Push, due_at: Timestamp) -> Result<(), StoreError> {
    let row = (
        pushes::session_id.eq(push.session_id.db()),
        pushes::attention.eq(&push.attention),
        pushes::owner_id.eq(push.owner_id.db()),
        pushes::kind.eq(&push.kind),
        pushes::taken.eq(false),
        pushes::due_at.eq(due_at.db()),
    );
    on!(tx, |c| diesel::insert_into(pushes::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(())
}

/// The session wants something else than before: events that are not yet given are deleted, and all others are taken back.
pub(crate) fn supersede(tx: &mut Conn, session: SessionId) -> Result<(), StoreError> {
    let of_session = pushes::table.filter(pushes::session_id.eq(session.db()));
    on!(tx, |c| diesel::delete(of_session.filter(pushes::taken.eq(false))).execute(c))?;
    let given = of_session.filter(pushes::kind.ne(""));
    let back = (pushes::kind.eq(""), pushes::due_at.eq(now().nullable()));
    on!(tx, |c| diesel::update(given).set(back).execute(c))?;
    Ok(())
}

/// Takes events that are due; no other process takes them before `until`.
pub(crate) fn take(tx: &mut Conn, limit: i64, until: Timestamp) -> Result<Vec<Push>, StoreError> {
    let due = pushes::table.filter(pushes::due_at.le(now().nullable())).order(pushes::due_at).limit(limit);
    let taken: Vec<Push> = on!(
        tx,
        Pg | c | due.select(Push::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due.select(Push::as_select()).load(c)
    )?;
    for push in &taken {
        let row = pushes::table.find((push.session_id.db(), &push.attention));
        on!(tx, |c| diesel::update(row).set((pushes::taken.eq(true), pushes::due_at.eq(until.db()))).execute(c))?;
    }
    Ok(taken)
}

/// identity has the event, which stays so that it can be taken back; what was taken back goes. Nothing happens when the session has
/// wanted something else meanwhile.
pub(crate) fn given(tx: &mut Conn, push: &Push) -> Result<(), StoreError> {
    let row = pushes::table
        .filter(pushes::session_id.eq(push.session_id.db()))
        .filter(pushes::attention.eq(&push.attention).and(pushes::kind.eq(&push.kind)));
    if push.kind.is_empty() {
        on!(tx, |c| diesel::delete(row).execute(c))?;
    } else {
        on!(tx, |c| diesel::update(row).set(pushes::due_at.eq(None::<DbTime>)).execute(c))?;
    }
    Ok(())
}

/// When the next event is due.
pub(crate) fn next_due(c: &mut Conn) -> Result<Option<Timestamp>, StoreError> {
    let next = pushes::table.filter(pushes::due_at.is_not_null()).order(pushes::due_at).select(pushes::due_at);
    let next: Option<Option<Timestamp>> = on!(c, |c| next.first(c).optional())?;
    Ok(next.flatten())
}

/// The sessions whose machine has not been seen since `before` while its agent thought. They count as not thinking from now on, so
/// that each absence is found once.
pub(crate) fn absent(tx: &mut Conn, before: Timestamp, limit: i64) -> Result<Vec<(SessionId, UserId)>, StoreError> {
    let absent = sessions::table
        .filter(sessions::hosted.and(sessions::thinking).and(sessions::deleted_at.is_null()))
        .filter(sessions::ended_at.is_null().and(sessions::last_active_at.lt(before.db())))
        .limit(limit)
        .select((sessions::id, sessions::owner_id));
    let found: Vec<(SessionId, UserId)> =
        on!(tx, Pg | c | absent.for_update().skip_locked().load(c), Sqlite | c | absent.load(c))?;
    for (session, _) in &found {
        let row = sessions::table.find(session.db());
        on!(tx, |c| diesel::update(row).set(sessions::thinking.eq(false)).execute(c))?;
    }
    Ok(found)
}

/// The event of a kind.
pub(crate) fn event(session_id: SessionId, owner_id: UserId, kind: PushKind, attention: String) -> Push {
    Push { session_id, attention, owner_id, kind: kind.as_str().to_owned() }
}
