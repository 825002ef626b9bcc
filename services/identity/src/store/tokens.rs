//! The tables `machine_tokens` and `revocations`.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Now, now};
use ensemble_store_kit::{Conn, StoreError, cursor, on};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use ensemble_types::time::Timestamp;

use super::Store;
use super::schema::{accounts, machine_tokens, revocations};
use super::signing_keys::topic;
use crate::domain::MachineToken;
use crate::error::Error;

/// A revocation outlives its token by what the clocks of those who verify may differ by.
const CLOCKS_DIFFER: Duration = Duration::from_secs(300);

/// A place in the list of an account's machine tokens: behind the one that was made then and has this id.
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
}

impl Store {
    /// Notes a new token. The oldest picture of it that anybody could act on is the token itself, which is made after.
    pub(crate) async fn make_machine_token(
        &self,
        user: UserId,
        machine: MachineId,
        lives: Duration,
        at_most: i64,
    ) -> Result<MachineToken, Error> {
        self.db
            .write("make a machine token", move |tx| {
                // One at a time for each account, or many at once would each count what was there before.
                let account = accounts::table.find(user.db()).select(accounts::id);
                let _: Option<UserId> = on!(
                    tx,
                    Pg | c | account.for_update().first(c).optional(),
                    Sqlite | c | account.first(c).optional()
                )?;
                let created_at = tx.now()?;
                let unexpired = machine_tokens::table
                    .filter(machine_tokens::user_id.eq(user.db()))
                    .filter(machine_tokens::expires_at.gt(created_at.db()));
                let count: i64 = on!(tx, |c| unexpired.count().get_result(c))?;
                if count >= at_most {
                    return Err(Error::TooManyTokens);
                }
                let token = MachineToken {
                    id: TokenId::generate(),
                    user,
                    machine: machine.clone(),
                    created_at,
                    expires_at: created_at.plus(lives),
                };
                let row = (
                    machine_tokens::id.eq(token.id.db()),
                    machine_tokens::user_id.eq(user.db()),
                    machine_tokens::machine_id.eq(token.machine.as_str()),
                    machine_tokens::created_at.eq(token.created_at.db()),
                    machine_tokens::expires_at.eq(token.expires_at.db()),
                    machine_tokens::revoked.eq(false),
                );
                on!(tx, |c| diesel::insert_into(machine_tokens::table).values(row).execute(c))?;
                Ok(token)
            })
            .await
    }

    /// The tokens of an account that are good: neither expired nor revoked.
    pub(crate) async fn machine_tokens(&self, user: UserId, after: After, limit: u32) -> Result<Page, Error> {
        self.db
            .read("list machine tokens", move |c| {
                let query = behind(user.db(), after.created_at.db(), after.id.db()).limit(i64::from(limit) + 1);
                let mut rows: Vec<Row> = on!(c, |c| query.select(Row::as_select()).load(c))?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let more = rows.len() > limit;
                rows.truncate(limit);
                let tokens = rows.into_iter().map(|row| row.token(c)).collect::<Result<Vec<_>, _>>()?;
                let last = tokens.last().filter(|_| more);
                Ok(Page { next: last.map(|token| After { created_at: token.created_at, id: token.id }), tokens })
            })
            .await
    }

    /// Revokes a machine token of the account; one that was revoked before is revoked.
    pub(crate) async fn revoke_machine_token(&self, user: UserId, id: TokenId) -> Result<(), Error> {
        self.db
            .write("revoke a machine token", move |tx| {
                let own = machine_tokens::table
                    .find(id.db())
                    .filter(machine_tokens::user_id.eq(user.db()))
                    .filter(machine_tokens::expires_at.gt(now()));
                let revoked: Option<Timestamp> = on!(tx, |c| diesel::update(own)
                    .set(machine_tokens::revoked.eq(true))
                    .returning(machine_tokens::expires_at)
                    .get_result(c)
                    .optional())?;
                Ok(note_revoked(tx, id, revoked.ok_or(Error::NoSuchToken)?)?)
            })
            .await
    }

    /// Revokes a token that is noted nowhere: a user's.
    pub(crate) async fn revoke(&self, id: TokenId, expires_at: Timestamp) -> Result<(), Error> {
        self.db.write("revoke a token", move |tx| Ok(note_revoked(tx, id, expires_at)?)).await
    }

    /// Revokes all tokens of a machine that were made until then; gives how many were good.
    pub(crate) async fn revoke_tokens_of(
        &self,
        user: UserId,
        machine: MachineId,
        made_until: Timestamp,
    ) -> Result<usize, StoreError> {
        self.db
            .write("revoke a machine's tokens", move |tx| {
                let good = machine_tokens::table
                    .filter(machine_tokens::user_id.eq(user.db()))
                    .filter(machine_tokens::machine_id.eq(machine.as_str()))
                    .filter(machine_tokens::created_at.le(made_until.db()))
                    .filter(machine_tokens::expires_at.gt(now()))
                    .filter(machine_tokens::revoked.eq(false));
                let revoked: Vec<(TokenId, Timestamp)> = on!(tx, |c| diesel::update(good)
                    .set(machine_tokens::revoked.eq(true))
                    .returning((machine_tokens::id, machine_tokens::expires_at))
                    .get_results(c))?;
                for (id, expires_at) in &revoked {
                    note_revoked(tx, *id, *expires_at)?;
                }
                Ok(revoked.len())
            })
            .await
    }

    /// Forgets tokens and revocations that have expired, at most `limit` of each; gives how many there were.
    pub(crate) async fn forget_tokens(&self, limit: i64) -> Result<usize, StoreError> {
        self.db
            .write("forget expired tokens", move |tx| {
                let tokens = machine_tokens::table.filter(machine_tokens::expires_at.le(now())).limit(limit);
                let tokens: Vec<TokenId> = on!(tx, |c| tokens.select(machine_tokens::id).load(c))?;
                let tokens: Vec<DbId> = tokens.into_iter().map(DbId::from).collect();
                let old = machine_tokens::table.filter(machine_tokens::id.eq_any(tokens));
                let tokens = on!(tx, |c| diesel::delete(old).execute(c))?;
                let revoked = revocations::table.filter(revocations::expires_at.le(now())).limit(limit);
                let revoked: Vec<TokenId> = on!(tx, |c| revoked.select(revocations::token_id).load(c))?;
                let revoked: Vec<DbId> = revoked.into_iter().map(DbId::from).collect();
                let old = revocations::table.filter(revocations::token_id.eq_any(revoked));
                Ok(tokens + on!(tx, |c| diesel::delete(old).execute(c))?)
            })
            .await
    }
}

impl After {
    const LIST: &str = "machine-tokens";

    /// The beginning: behind a token that is made at the end of the year 9999.
    pub(crate) fn start() -> Self {
        Self { created_at: Timestamp::from_unix_seconds(253_402_300_799), id: TokenId::generate() }
    }

    /// # Errors
    /// It is not a cursor of this list.
    pub(crate) fn decode(text: &str) -> Result<Self, Error> {
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
        })
    }
}

#[diesel::dsl::auto_type]
fn behind(user: DbId, at: DbTime, id: DbId) -> _ {
    machine_tokens::table
        .filter(machine_tokens::user_id.eq(user))
        .filter(machine_tokens::revoked.eq(false))
        .filter(machine_tokens::expires_at.gt(Now))
        // Says again what the next filter says, in a way that an index understands.
        .filter(machine_tokens::created_at.le(at))
        .filter(machine_tokens::created_at.lt(at).or(machine_tokens::id.lt(id)))
        .order((machine_tokens::created_at.desc(), machine_tokens::id.desc()))
}

fn note_revoked(tx: &mut Conn, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
    let until = expires_at.plus(CLOCKS_DIFFER);
    let row = (revocations::token_id.eq(id.db()), revocations::expires_at.eq(until.db()));
    on!(tx, |c| diesel::insert_into(revocations::table).values(row).on_conflict_do_nothing().execute(c))?;
    tx.notify(topic());
    Ok(())
}
