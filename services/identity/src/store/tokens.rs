//! The table `machine_tokens`.

use diesel::prelude::*;
use ensemble_store_kit::cursor::{self, InvalidCursor};
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Now, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use ensemble_types::time::Timestamp;

use super::schema::machine_tokens;
use crate::domain::MachineToken;

/// A position in the list of an account's machine tokens: after the token that was made then and has this id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct After {
    created_at: Timestamp,
    id: TokenId,
}

/// A part of that list, newest first.
pub(crate) struct Page {
    pub(crate) tokens: Vec<MachineToken>,
    pub(crate) next: Option<After>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = machine_tokens)]
struct Row {
    id: TokenId,
    user_id: UserId,
    machine_id: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    by_key: bool,
}

/// Tokens that a person made for an account and that have not expired at that time, including revoked ones.
pub(crate) fn count_unexpired(tx: &mut Conn, user: UserId, at: Timestamp) -> Result<i64, StoreError> {
    let unexpired = machine_tokens::table
        .filter(machine_tokens::user_id.eq(user.db()))
        .filter(machine_tokens::by_key.eq(false))
        .filter(machine_tokens::expires_at.gt(at.db()));
    on!(tx, |c| unexpired.count().get_result(c))
}

pub(crate) fn insert(tx: &mut Conn, token: &MachineToken) -> Result<(), StoreError> {
    let row = (
        machine_tokens::id.eq(token.id.db()),
        machine_tokens::user_id.eq(token.user.db()),
        machine_tokens::machine_id.eq(token.machine.as_str()),
        machine_tokens::created_at.eq(token.created_at.db()),
        machine_tokens::expires_at.eq(token.expires_at.db()),
        machine_tokens::revoked.eq(false),
        machine_tokens::by_key.eq(token.by_key),
    );
    on!(tx, |c| diesel::insert_into(machine_tokens::table).values(row).execute(c))?;
    Ok(())
}

/// The tokens of an account that are neither expired nor revoked, newest first.
pub(crate) fn page(c: &mut Conn, user: UserId, after: After, limit: u32) -> Result<Page, StoreError> {
    let query = older(user.db(), after.created_at.db(), after.id.db()).limit(i64::from(limit) + 1);
    let mut rows: Vec<Row> = on!(c, |c| query.select(Row::as_select()).load(c))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let tokens = rows.into_iter().map(|row| row.token(c)).collect::<Result<Vec<_>, _>>()?;
    let last = tokens.last().filter(|_| has_more);
    Ok(Page { next: last.map(|token| After { created_at: token.created_at, id: token.id }), tokens })
}

/// Marks an unexpired token of the account as revoked. Returns when it expires; `None` if there is no such token.
pub(crate) fn revoke(tx: &mut Conn, user: UserId, id: TokenId) -> Result<Option<Timestamp>, StoreError> {
    let own = machine_tokens::table
        .find(id.db())
        .filter(machine_tokens::user_id.eq(user.db()))
        .filter(machine_tokens::expires_at.gt(now()));
    on!(tx, |c| diesel::update(own)
        .set(machine_tokens::revoked.eq(true))
        .returning(machine_tokens::expires_at)
        .get_result(c)
        .optional())
}

/// Marks the valid tokens of a machine that were made until then as revoked. Returns them with the times when they expire.
pub(crate) fn revoke_of_machine(
    tx: &mut Conn,
    user: UserId,
    machine: &MachineId,
    made_until: Timestamp,
) -> Result<Vec<(TokenId, Timestamp)>, StoreError> {
    let valid = machine_tokens::table
        .filter(machine_tokens::user_id.eq(user.db()))
        .filter(machine_tokens::machine_id.eq(machine.as_str()))
        .filter(machine_tokens::created_at.le(made_until.db()))
        .filter(machine_tokens::expires_at.gt(now()))
        .filter(machine_tokens::revoked.eq(false));
    on!(tx, |c| diesel::update(valid)
        .set(machine_tokens::revoked.eq(true))
        .returning((machine_tokens::id, machine_tokens::expires_at))
        .get_results(c))
}

/// Deletes at most `limit` expired tokens. Returns how many there were.
pub(crate) fn delete_expired(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let old = machine_tokens::table.filter(machine_tokens::expires_at.le(now())).limit(limit);
    let old: Vec<TokenId> = on!(tx, |c| old.select(machine_tokens::id).load(c))?;
    let old: Vec<DbId> = old.into_iter().map(DbId::from).collect();
    on!(tx, |c| diesel::delete(machine_tokens::table.filter(machine_tokens::id.eq_any(old))).execute(c))
}

impl After {
    const LIST: &str = "machine-tokens";

    /// The beginning of the list: after a token that is made at the end of the year 9999.
    pub(crate) fn start() -> Self {
        Self { created_at: Timestamp::from_unix_seconds(253_402_300_799), id: TokenId::generate() }
    }

    /// # Errors
    /// It is not a cursor of this list.
    pub(crate) fn decode(text: &str) -> Result<Self, InvalidCursor> {
        let (micros, id) = cursor::decode(Self::LIST, text)?;
        Ok(Self { created_at: Timestamp::from_micros(micros), id })
    }

    pub(crate) fn encode(self) -> String {
        cursor::encode(Self::LIST, &(self.created_at.micros(), self.id))
    }
}

impl Row {
    fn token(self, c: &Conn) -> Result<MachineToken, StoreError> {
        let machine = self.machine_id.parse().map_err(|error| StoreError::bad_row(c.operation(), error));
        Ok(MachineToken {
            id: self.id,
            user: self.user_id,
            machine: machine?,
            created_at: self.created_at,
            expires_at: self.expires_at,
            by_key: self.by_key,
        })
    }
}

#[diesel::dsl::auto_type]
fn older(user: DbId, at: DbTime, id: DbId) -> _ {
    machine_tokens::table
        .filter(machine_tokens::user_id.eq(user))
        .filter(machine_tokens::revoked.eq(false))
        .filter(machine_tokens::expires_at.gt(Now))
        // Implied by the next filter, and in a form that the index can be searched by.
        .filter(machine_tokens::created_at.le(at))
        .filter(machine_tokens::created_at.lt(at).or(machine_tokens::id.lt(id)))
        .order((machine_tokens::created_at.desc(), machine_tokens::id.desc()))
}
