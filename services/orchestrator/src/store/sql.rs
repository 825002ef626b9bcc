//! Statements that are written as SQL, because the same text says on both databases what diesel's language cannot.
//!
//! `{}` stands for the next value. The texts are fixed, so the connection keeps the prepared statement, as it does with
//! diesel's own queries.

use std::marker::PhantomData;
use std::time::Duration;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Double, Nullable, Text};
use diesel::sqlite::Sqlite;
use ensemble_store_kit::types::{DbId, DbTime, Moment, Now, Uid};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::time::Timestamp;

/// A statement whose rows have the SQL types `ST`.
#[derive(Clone, Debug)]
pub(super) struct Sql<ST> {
    postgres: &'static str,
    sqlite: &'static str,
    values: Vec<Value>,
    rows: PhantomData<ST>,
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Id(DbId),
    /// A set, to stand after `IN`.
    Ids(Vec<DbId>, String),
    Time(Option<DbTime>),
    Int(Option<i64>),
    Real(Option<f64>),
    Flag(bool),
    Text(Option<String>),
    Bytes(Vec<u8>),
    /// Columns of several rows, for PostgreSQL's `unnest`.
    IdList(Vec<DbId>),
    TimeList(Vec<Option<DbTime>>),
    IntList(Vec<Option<i64>>),
    RealList(Vec<Option<f64>>),
    TextList(Vec<Option<String>>),
    /// The database's clock.
    Now,
    /// So many microseconds after the database's clock.
    In(i64),
}

/// A statement without rows, or with rows that are not looked at.
pub(super) fn sql<ST>(text: &'static str, values: Vec<Value>) -> Sql<ST> {
    two_sqls(text, text, values)
}

/// The same in two dialects. The values come in the same order.
pub(super) fn two_sqls<ST>(postgres: &'static str, sqlite: &'static str, values: Vec<Value>) -> Sql<ST> {
    Sql { postgres, sqlite, values, rows: PhantomData }
}

/// A set of ids.
pub(super) fn ids<I: Into<DbId>>(ids: impl IntoIterator<Item = I>) -> Value {
    let ids: Vec<DbId> = ids.into_iter().map(Into::into).collect();
    let hex: Vec<String> = ids.iter().map(|id| format!("\"{}\"", id.0.simple())).collect();
    let json = format!("[{}]", hex.join(","));
    Value::Ids(ids, json)
}

/// A column of several rows.
pub(super) fn list<T>(column: impl Iterator<Item = T>) -> Value
where
    Value: FromIterator<T>,
{
    column.collect()
}

macro_rules! list_of {
    ($($from:ty, $variant:ident, $item:ident => $to:expr;)*) => {$(
        impl FromIterator<$from> for Value {
            fn from_iter<I: IntoIterator<Item = $from>>(column: I) -> Self {
                Self::$variant(column.into_iter().map(|$item| $to).collect())
            }
        }
    )*};
}

list_of! {
    Option<Timestamp>, TimeList, item => item.map(DbTime);
    Option<i64>, IntList, item => item;
    Option<f64>, RealList, item => item;
    Option<String>, TextList, item => item;
}

macro_rules! into_value {
    ($($from:ty, $v:ident => $to:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($v: $from) -> Self {
                $to
            }
        }
    )*};
}

into_value! {
    RunId, v => Self::Id(v.into());
    TaskId, v => Self::Id(v.into());
    LeaseId, v => Self::Id(v.into());
    UserId, v => Self::Id(v.into());
    Timestamp, v => Self::Time(Some(DbTime(v)));
    Option<Timestamp>, v => Self::Time(v.map(DbTime));
    i64, v => Self::Int(Some(v));
    i32, v => Self::Int(Some(v.into()));
    u32, v => Self::Int(Some(v.into()));
    Option<i64>, v => Self::Int(v);
    Option<i32>, v => Self::Int(v.map(i64::from));
    Option<f64>, v => Self::Real(v);
    bool, v => Self::Flag(v);
    &str, v => Self::Text(Some(v.to_owned()));
    String, v => Self::Text(Some(v));
    Option<&str>, v => Self::Text(v.map(str::to_owned));
    Option<String>, v => Self::Text(v);
    Vec<u8>, v => Self::Bytes(v);
    Duration, v => Self::In(i64::try_from(v.as_micros()).unwrap_or(i64::MAX));
}

/// `values![id, at, "text"]`
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::sql::Value::from($value)),*] };
}
pub(super) use values;

impl<ST> QueryId for Sql<ST> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<ST> Query for Sql<ST> {
    type SqlType = ST;
}

impl<ST, C> RunQueryDsl<C> for Sql<ST> {}

impl<ST> QueryFragment<Pg> for Sql<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut values = self.values.iter();
        for (place, part) in self.postgres.split("{}").enumerate() {
            if place > 0 {
                match values.next().ok_or_else(too_few)? {
                    Value::Ids(set, _) => {
                        out.push_sql("(SELECT unnest(");
                        out.push_bind_param::<Array<Uid>, Vec<DbId>>(set)?;
                        out.push_sql("))");
                    }
                    Value::Now => Now.walk_ast(out.reborrow())?,
                    Value::In(micros) => {
                        out.push_sql("(clock_timestamp() + ");
                        out.push_bind_param::<BigInt, _>(micros)?;
                        out.push_sql(" * interval '1 microsecond')");
                    }
                    Value::Id(id) => out.push_bind_param::<Uid, _>(id)?,
                    Value::Time(at) => out.push_bind_param::<Nullable<Moment>, _>(at)?,
                    Value::Int(number) => out.push_bind_param::<Nullable<BigInt>, _>(number)?,
                    Value::Real(number) => out.push_bind_param::<Nullable<Double>, _>(number)?,
                    Value::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                    Value::Text(text) => out.push_bind_param::<Nullable<Text>, _>(text)?,
                    Value::Bytes(bytes) => out.push_bind_param::<Binary, _>(bytes)?,
                    Value::IdList(list) => out.push_bind_param::<Array<Uid>, _>(list)?,
                    Value::TimeList(list) => out.push_bind_param::<Array<Nullable<Moment>>, _>(list)?,
                    Value::IntList(list) => out.push_bind_param::<Array<Nullable<BigInt>>, _>(list)?,
                    Value::RealList(list) => out.push_bind_param::<Array<Nullable<Double>>, _>(list)?,
                    Value::TextList(list) => out.push_bind_param::<Array<Nullable<Text>>, _>(list)?,
                }
            }
            out.push_sql(part);
        }
        Ok(())
    }
}

impl<ST> QueryFragment<Sqlite> for Sql<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let mut values = self.values.iter();
        for (place, part) in self.sqlite.split("{}").enumerate() {
            if place > 0 {
                match values.next().ok_or_else(too_few)? {
                    Value::Ids(_, json) => {
                        out.push_sql("(SELECT unhex(value) FROM json_each(");
                        out.push_bind_param::<Text, _>(json)?;
                        out.push_sql("))");
                    }
                    Value::Now => Now.walk_ast(out.reborrow())?,
                    Value::In(micros) => {
                        out.push_sql("(");
                        Now.walk_ast(out.reborrow())?;
                        out.push_sql(" + ");
                        out.push_bind_param::<BigInt, _>(micros)?;
                        out.push_sql(")");
                    }
                    Value::Id(id) => out.push_bind_param::<Uid, _>(id)?,
                    Value::Time(at) => out.push_bind_param::<Nullable<Moment>, _>(at)?,
                    Value::Int(number) => out.push_bind_param::<Nullable<BigInt>, _>(number)?,
                    Value::Real(number) => out.push_bind_param::<Nullable<Double>, _>(number)?,
                    Value::Flag(flag) => out.push_bind_param::<Bool, _>(flag)?,
                    Value::Text(text) => out.push_bind_param::<Nullable<Text>, _>(text)?,
                    Value::Bytes(bytes) => out.push_bind_param::<Binary, _>(bytes)?,
                    Value::IdList(_)
                    | Value::TimeList(_)
                    | Value::IntList(_)
                    | Value::RealList(_)
                    | Value::TextList(_) => return Err(no_lists()),
                }
            }
            out.push_sql(part);
        }
        Ok(())
    }
}

fn no_lists() -> diesel::result::Error {
    diesel::result::Error::QueryBuilderError("SQLite has no arrays".into())
}

fn too_few() -> diesel::result::Error {
    diesel::result::Error::QueryBuilderError("a statement has more places than values".into())
}
