//! The table `invites`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Topic, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::schema::invites;
use crate::domain::{DAY, Invite, InviteId, InviteStep, encode};

#[derive(Queryable, Selectable)]
#[diesel(table_name = invites)]
struct Row {
    id: Vec<u8>,
    user_id: Option<UserId>,
    admission: Vec<u8>,
    state: String,
    claim: Option<String>,
    answer: Option<String>,
    admitted: bool,
    created_at: Timestamp,
    expires_at: Timestamp,
    shown_until: Timestamp,
}

/// Published when an invitation has changed.
pub(crate) fn topic(id: &InviteId) -> Topic {
    Topic::new("invite", encode(id))
}

/// The number of an account's invitations that can still be used.
pub(crate) fn count_open(tx: &mut Conn, user: UserId) -> Result<i64, StoreError> {
    let open = invites::table
        .filter(invites::user_id.eq(user.db()))
        .filter(invites::expires_at.gt(now()))
        .filter(invites::state.eq_any([InviteStep::Open.as_str(), InviteStep::Claimed.as_str()]));
    on!(tx, |c| open.count().get_result(c))
}

pub(crate) fn count_since(tx: &mut Conn, user: UserId, since: Timestamp) -> Result<i64, StoreError> {
    let recent = invites::table.filter(invites::user_id.eq(user.db())).filter(invites::created_at.gt(since.db()));
    on!(tx, |c| recent.count().get_result(c))
}

pub(crate) fn insert(tx: &mut Conn, invite: &Invite) -> Result<(), StoreError> {
    let row = (
        invites::id.eq(invite.id.as_slice()),
        invites::user_id.eq(invite.user.map(|user| user.db())),
        invites::admission.eq(invite.admission.as_slice()),
        invites::state.eq(invite.step.as_str()),
        invites::created_at.eq(invite.created_at.db()),
        invites::expires_at.eq(invite.expires_at.db()),
        invites::shown_until.eq(invite.shown_until.db()),
    );
    on!(tx, |c| diesel::insert_into(invites::table).values(row).execute(c))?;
    Ok(())
}

/// One that still can be read.
pub(crate) fn find(c: &mut Conn, id: &InviteId) -> Result<Option<Invite>, StoreError> {
    let query = invites::table.filter(invites::id.eq(id.as_slice())).filter(invites::shown_until.gt(now()));
    let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.invite(c)).transpose()
}

/// Finds one that still can be read, and locks it until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, id: &InviteId) -> Result<Option<Invite>, StoreError> {
    let query = invites::table.filter(invites::id.eq(id.as_slice())).filter(invites::shown_until.gt(now()));
    let row: Option<Row> = on!(
        tx,
        Pg | c | query.select(Row::as_select()).for_update().first(c).optional(),
        Sqlite | c | query.select(Row::as_select()).first(c).optional()
    )?;
    row.map(|row| row.invite(tx)).transpose()
}

/// Those of an account that still can be read, the newest first.
pub(crate) fn of_account(c: &mut Conn, user: UserId) -> Result<Vec<Invite>, StoreError> {
    let query = invites::table
        .filter(invites::user_id.eq(user.db()))
        .filter(invites::shown_until.gt(now()))
        .order((invites::created_at.desc(), invites::id));
    let rows: Vec<Row> = on!(c, |c| query.select(Row::as_select()).load(c))?;
    rows.into_iter().map(|row| row.invite(c)).collect()
}

/// Writes the next step of an invitation, and wakes who waits for it.
pub(crate) fn update(tx: &mut Conn, invite: &Invite) -> Result<(), StoreError> {
    let bad = |error| StoreError::bad_row("update an invitation", error);
    let claim = invite.claim.as_ref().map(serde_json::to_string).transpose().map_err(bad)?;
    let changed = (
        invites::state.eq(invite.step.as_str()),
        invites::claim.eq(claim),
        invites::answer.eq(&invite.answer),
        invites::admitted.eq(invite.is_admitted),
        invites::expires_at.eq(invite.expires_at.db()),
        invites::shown_until.eq(invite.shown_until.db()),
    );
    let row = invites::table.filter(invites::id.eq(invite.id.as_slice()));
    on!(tx, |c| diesel::update(row).set(changed).execute(c))?;
    tx.notify(topic(&invite.id));
    Ok(())
}

/// Of replicas that start at once, one makes the invitation for the first account.
pub(crate) fn lock_first(tx: &mut Conn) -> Result<(), StoreError> {
    on!(
        tx,
        Pg | c | diesel::sql_query("LOCK TABLE invites IN SHARE ROW EXCLUSIVE MODE").execute(c).map(drop),
        Sqlite | _c | Ok(())
    )
}

/// The one for the first account, while it can be used.
pub(crate) fn find_first(tx: &mut Conn) -> Result<Option<Invite>, StoreError> {
    let query = invites::table
        .filter(invites::user_id.is_null())
        .filter(invites::expires_at.gt(now()))
        .filter(invites::state.eq(InviteStep::Open.as_str()));
    let row: Option<Row> = on!(tx, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.invite(tx)).transpose()
}

/// Deletes those for the first account.
pub(crate) fn delete_first(tx: &mut Conn) -> Result<usize, StoreError> {
    on!(tx, |c| diesel::delete(invites::table.filter(invites::user_id.is_null())).execute(c))
}

/// Deletes at most `limit` that cannot be read, and that do not count as made today. Returns how many there were.
pub(crate) fn delete_over(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let day_ago = tx.now()?.minus(DAY);
    let over =
        invites::table.filter(invites::shown_until.le(now())).filter(invites::created_at.le(day_ago.db())).limit(limit);
    let over: Vec<Vec<u8>> = on!(tx, |c| over.select(invites::id).load(c))?;
    on!(tx, |c| diesel::delete(invites::table.filter(invites::id.eq_any(&over))).execute(c))
}

impl Row {
    fn invite(self, c: &Conn) -> Result<Invite, StoreError> {
        let bad = |what: &'static str| StoreError::bad_row(c.operation(), what);
        let step = InviteStep::ALL.into_iter().find(|step| step.as_str() == self.state);
        let claim = self.claim.as_deref().map(serde_json::from_str).transpose();
        Ok(Invite {
            id: self.id.try_into().map_err(|_| bad("the id of an invitation has the wrong length"))?,
            user: self.user_id,
            admission: self.admission.try_into().map_err(|_| bad("an admission has the wrong length"))?,
            step: step.ok_or_else(|| bad("an invitation has an unknown state"))?,
            claim: claim.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            answer: self.answer,
            is_admitted: self.admitted,
            created_at: self.created_at,
            expires_at: self.expires_at,
            shown_until: self.shown_until,
        })
    }
}
