//! Column types that are the same in Rust and native in each database.
//!
//! | in `table!` | Rust | PostgreSQL | SQLite |
//! |---|---|---|---|
//! | [`Uid`] | every id of `ensemble_types::ids`, [`Uuid`] | `uuid` | `BLOB` of 16 bytes |
//! | [`RefText`] | [`Ref`] | `text` | `TEXT` |
//! | [`Moment`] | [`Timestamp`] | `timestamptz` | `INTEGER`, microseconds since 1970 |
//!
//! Rows are read into these types as they are; queries take `id.db()` and `at.db()` ([`IntoDb`]), because an id's own
//! type, from a crate without diesel, cannot be an expression.

use std::io::Write;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow, Queryable};
use diesel::expression::AsExpression;
use diesel::pg::{Pg, PgValue};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, SqlOrd, SqlType};
use diesel::sqlite::{Sqlite, SqliteValue};
use ensemble_types::ids::{
    DeviceId, GatewaySessionId, LeaseId, LookId, MessageId, OrderId, RunId, SessionId, TaskId, TokenId, UserId,
};
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;
use uuid::Uuid;

/// An id.
#[derive(Clone, Copy, Debug, Default, SqlType, QueryId)]
#[diesel(postgres_type(oid = 2950, array_oid = 2951), sqlite_type(name = "Binary"))]
pub struct Uid;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, SqlType, QueryId)]
#[diesel(postgres_type(oid = 1184, array_oid = 1185), sqlite_type(name = "Long"))]
pub struct Moment;

/// A ref.
#[derive(Clone, Copy, Debug, Default, SqlType, QueryId)]
#[diesel(postgres_type(oid = 25, array_oid = 1009), sqlite_type(name = "Text"))]
pub struct RefText;

/// Lets queries take the `max` of a time.
impl SqlOrd for Moment {}

/// An id on its way into a query; `id.db()` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, AsExpression, FromSqlRow)]
#[diesel(sql_type = Uid)]
pub struct DbId(pub Uuid);

/// A time on its way into a query; `at.db()` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, AsExpression, FromSqlRow)]
#[diesel(sql_type = Moment)]
pub struct DbTime(pub Timestamp);

/// A ref on its way into a query; `reference.db()` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, AsExpression, FromSqlRow)]
#[diesel(sql_type = RefText)]
pub struct DbRef(pub Ref);

/// From our types to what a query takes: `sessions::id.eq(id.db())`. The way back needs nothing: row structs hold
/// `SessionId` and `Timestamp` themselves.
pub trait IntoDb {
    type Db;
    fn db(self) -> Self::Db;
}

impl IntoDb for Timestamp {
    type Db = DbTime;
    fn db(self) -> DbTime {
        DbTime(self)
    }
}

impl IntoDb for Ref {
    type Db = DbRef;
    fn db(self) -> DbRef {
        DbRef(self)
    }
}

impl From<Timestamp> for DbTime {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl<T: IntoDb> IntoDb for Option<T> {
    type Db = Option<T::Db>;
    fn db(self) -> Self::Db {
        self.map(T::db)
    }
}

/// Lets a Rust type be read from a column.
macro_rules! readable {
    ($rust:ty, $sql:ty, $of:ident => $made:expr) => {
        from_sql!($rust, $sql, $of => $made);

        impl<DB: Backend> Queryable<$sql, DB> for $rust
        where
            $rust: FromSql<$sql, DB>,
        {
            type Row = Self;
            fn build(row: Self) -> deserialize::Result<Self> {
                Ok(row)
            }
        }
    };
}

macro_rules! from_sql {
    ($rust:ty, $sql:ty, $of:ident => $made:expr) => {
        impl<DB: Backend> FromSql<$sql, DB> for $rust
        where
            $of: FromSql<$sql, DB>,
        {
            fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
                <$of as FromSql<$sql, DB>>::from_sql(value).map($made)
            }
        }
    };
}

macro_rules! ids {
    ($($id:ident)*) => {$(
        readable!($id, Uid, DbId => |id| $id::from_uuid(id.0));

        impl IntoDb for $id {
            type Db = DbId;
            fn db(self) -> DbId {
                DbId(self.uuid())
            }
        }

        impl From<$id> for DbId {
            fn from(id: $id) -> Self {
                Self(id.uuid())
            }
        }
    )*};
}

ids! { UserId DeviceId SessionId MessageId LookId RunId TaskId LeaseId OrderId TokenId GatewaySessionId }
// diesel reads a Uuid from any column type that it can be made from.
from_sql!(Uuid, Uid, DbId => |id| id.0);
readable!(Timestamp, Moment, DbTime => |at| at.0);
readable!(Ref, RefText, DbRef => |reference| reference.0);

impl ToSql<Uid, Pg> for DbId {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_bytes())?;
        Ok(IsNull::No)
    }
}

impl ToSql<Uid, Sqlite> for DbId {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.as_bytes().as_slice());
        Ok(IsNull::No)
    }
}

impl FromSql<Uid, Pg> for DbId {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(Uuid::from_slice(value.as_bytes())?))
    }
}

impl FromSql<Uid, Sqlite> for DbId {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        Ok(Self(Uuid::from_slice(value.read_blob())?))
    }
}

impl ToSql<RefText, Pg> for DbRef {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_str().as_bytes())?;
        Ok(IsNull::No)
    }
}

impl ToSql<RefText, Sqlite> for DbRef {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.as_str());
        Ok(IsNull::No)
    }
}

impl FromSql<RefText, Pg> for DbRef {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(str::from_utf8(value.as_bytes())?.parse()?))
    }
}

impl FromSql<RefText, Sqlite> for DbRef {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        Ok(Self(value.read_text().parse()?))
    }
}

/// PostgreSQL counts microseconds from 2000-01-01 (`POSTGRES_EPOCH_JDATE` in datatype/timestamp.h).
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

impl ToSql<Moment, Pg> for DbTime {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let micros = self.0.micros().checked_sub(POSTGRES_EPOCH).ok_or("time out of range")?;
        out.write_all(&micros.to_be_bytes())?;
        Ok(IsNull::No)
    }
}

impl ToSql<Moment, Sqlite> for DbTime {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.micros());
        Ok(IsNull::No)
    }
}

impl FromSql<Moment, Pg> for DbTime {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let micros = <i64 as FromSql<BigInt, Pg>>::from_sql(value)?;
        micros
            .checked_add(POSTGRES_EPOCH)
            .map(|m| Self(Timestamp::from_micros(m)))
            .ok_or_else(|| "time out of range".into())
    }
}

impl FromSql<Moment, Sqlite> for DbTime {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        Ok(Self(Timestamp::from_micros(value.read_long())))
    }
}

/// The database's clock as an SQL expression: `.set(updated_at.eq(now()))`, `.filter(expires_at.gt(now()))`. It is the
/// time of the statement and not of the transaction's start; whole milliseconds on SQLite.
pub const fn now() -> Now {
    Now
}

/// See [`now`].
#[derive(Clone, Copy, Debug, QueryId, diesel::expression::ValidGrouping)]
pub struct Now;

impl diesel::Expression for Now {
    type SqlType = Moment;
}

impl<QS> diesel::SelectableExpression<QS> for Now {}
impl<QS> diesel::AppearsOnTable<QS> for Now {}

impl QueryFragment<Pg> for Now {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> diesel::QueryResult<()> {
        out.push_sql("clock_timestamp()");
        Ok(())
    }
}

impl QueryFragment<Sqlite> for Now {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> diesel::QueryResult<()> {
        out.push_sql("(CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)");
        Ok(())
    }
}
