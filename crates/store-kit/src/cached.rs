//! Updates whose prepared statement the connection keeps.
//!
//! diesel prepares every UPDATE again, because the columns that it sets may differ from call to call and each set would be
//! another statement to keep. For a hot update with one text (a heartbeat, a counter) this costs the database more than
//! the write: it parses and plans each time. Use [`cached`] for those and for nothing else: it overrides diesel's judgement
//! of what is safe to keep, and a connection keeps its statements until it is closed.

use diesel::backend::Backend;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::sql_types::Integer;

/// Lets the connection keep the statement. It must have one text, or very few.
///
/// ```text
/// on!(tx, |c| cached(diesel::update(notes::table.find(id.db())).set(notes::body.eq(&body))).execute(c))?;
/// ```
pub fn cached<Q>(query: Q) -> Cached<Q> {
    Cached(query)
}

/// See [`cached`].
#[derive(Clone, Copy, Debug)]
pub struct Cached<Q>(Q);

impl<Q> Cached<Q> {
    /// Runs a statement that gives no rows, and returns how many it changed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn execute<'query, C>(self, conn: &mut C) -> QueryResult<usize>
    where
        C: Connection,
        Cached<CountAffected<Q>>: LoadQuery<'query, C, i32>,
    {
        // diesel's `execute` sees the statement through a reference and asks the original whether it may be kept.
        Ok(Cached(CountAffected(self.0)).load(conn)?.len())
    }
}

/// Identified by its text alone.
impl<Q> QueryId for Cached<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Query> Query for Cached<Q> {
    type SqlType = Q::SqlType;
}

impl<Q, C> RunQueryDsl<C> for Cached<Q> {}

impl<DB: Backend, Q: QueryFragment<DB>> QueryFragment<DB> for Cached<Q> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out)
    }

    fn is_safe_to_cache_prepared(&self, _: &DB) -> QueryResult<bool> {
        Ok(true)
    }
}

/// A statement with a row for each row that it changes.
#[derive(Clone, Copy, Debug)]
pub struct CountAffected<Q>(Q);

impl<Q> Query for CountAffected<Q> {
    type SqlType = Integer;
}

impl<DB: Backend, Q: QueryFragment<DB>> QueryFragment<DB> for CountAffected<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" RETURNING 1");
        Ok(())
    }
}
