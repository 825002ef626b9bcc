//! A clock that the tests move. The gateway compares the times that it has stored with the database's clock, so time has
//! passed for a session when its times lie further back.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use ensemble_testkit::{TestDatabase, sql};
use ensemble_types::time::Timestamp;
use serde_json::Value;

use crate::fixture::Fixture;

/// What one replica does for all of them from time to time.
const CHORES: &str = "voice_chores";
/// The columns of a session's times that move. The creation stays: seconds count for its day, and midnight may be near.
const COLUMNS: [&str; 4] = ["active_at", "ended_at", "expires_at", "due_at"];
const CREATION: &str = "created_at";

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    record: String,
}

impl Fixture {
    /// Lets time pass for all sessions and chores. The timers see it with their next sweep.
    pub(crate) async fn pass(&self, time: Duration) {
        pass(&self.database, time).await;
    }
}

pub(crate) async fn pass(database: &TestDatabase, time: Duration) {
    let url = database.url.clone();
    let passed = tokio::task::spawn_blocking(move || match url.strip_prefix("sqlite:") {
        Some(file) => pass_in_sqlite(&mut sql::sqlite(file), time),
        None => pass_in_postgres(&mut PgConnection::establish(&url).unwrap(), time),
    });
    passed.await.unwrap().unwrap();
}

fn pass_in_sqlite(connection: &mut SqliteConnection, time: Duration) -> QueryResult<()> {
    let back = COLUMNS.map(|column| format!("{column} = {column} - ?1")).join(", ");
    let update = format!("UPDATE voice_sessions SET {back}, record = ?2, version = version + 1 WHERE hex(id) = ?3");
    connection.immediate_transaction(|c| {
        let rows: Vec<Row> = diesel::sql_query("SELECT hex(id) AS id, record FROM voice_sessions").load(c)?;
        for Row { id, record } in rows {
            let update = diesel::sql_query(&update).bind::<BigInt, _>(micros(time));
            update.bind::<Text, _>(aged(&record, time)).bind::<Text, _>(id).execute(c)?;
        }
        diesel::sql_query(format!("UPDATE {CHORES} SET due_at = due_at - ?1"))
            .bind::<BigInt, _>(micros(time))
            .execute(c)?;
        Ok(())
    })
}

/// One session at a time, as the gateway locks them.
fn pass_in_postgres(connection: &mut PgConnection, time: Duration) -> QueryResult<()> {
    let back = COLUMNS.map(|column| format!("{column} = {column} - $1 * interval '1 microsecond'")).join(", ");
    let update = format!("UPDATE voice_sessions SET {back}, record = $2, version = version + 1 WHERE id = $3::uuid");
    let columns = "SELECT id::text AS id, record FROM voice_sessions";
    let rows: Vec<Row> = diesel::sql_query(columns).load(connection)?;
    for Row { id, .. } in rows {
        connection.transaction(|c| {
            let locked = diesel::sql_query(format!("{columns} WHERE id = $1::uuid FOR UPDATE"));
            let Row { record, .. } = locked.bind::<Text, _>(&id).get_result(c)?;
            let update = diesel::sql_query(&update).bind::<BigInt, _>(micros(time));
            update.bind::<Text, _>(aged(&record, time)).bind::<Text, _>(&id).execute(c)
        })?;
    }
    let update = format!("UPDATE {CHORES} SET due_at = due_at - $1 * interval '1 microsecond'");
    diesel::sql_query(update).bind::<BigInt, _>(micros(time)).execute(connection)?;
    Ok(())
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

/// A session's record, with its times further back.
fn aged(record: &str, time: Duration) -> String {
    let mut record: Value = serde_json::from_str(record).unwrap();
    age(&mut record, time);
    record.to_string()
}

fn age(value: &mut Value, time: Duration) {
    match value {
        Value::Object(fields) => {
            fields.iter_mut().filter(|(name, _)| *name != CREATION).for_each(|(_, one)| age(one, time));
        }
        Value::String(text) => {
            if let Ok(at) = text.parse::<Timestamp>() {
                *text = at.minus(time).to_string();
            }
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
