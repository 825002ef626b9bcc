//! A session goes live when LiveKit has answered: the one commit that a start waits for, together with all other starts
//! that wait at that moment.
//!
//! A start knows the row as it wrote it. As long as nobody else has changed it, one statement without a look at it will
//! do; otherwise, and when another session has to be replaced, the start is left to the careful way of every change.

use std::time::Duration;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, Nullable, Text};
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Moment, Uid};
use ensemble_store_kit::{Conn, Db, Raw, StoreError, cached, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::rows::voice_sessions;
use super::start::Recorded;
use super::{Nudge, Store, topic};
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, Sid};

/// The way to the writer, which ends with the last of them.
#[derive(Clone)]
pub(super) struct Confirmer(mpsc::Sender<Waiting>);

/// One session: its record as it should be found, and as it will be.
struct Job {
    id: GatewaySessionId,
    before: String,
    after: String,
    due_at: Option<Timestamp>,
    /// Somebody may be waiting for it.
    wake: bool,
}

struct Waiting {
    job: Job,
    answer: oneshot::Sender<Result<bool, StoreError>>,
}

const OPERATION: &str = "let voice sessions go live";
/// Starts that wait for their commit; more than ever wait for LiveKit at once.
const QUEUE: usize = 4_096;
/// How long a start waits for its commit; a database that hangs ends no statement.
const TIMEOUT: Duration = Duration::from_millis(2_500);
/// Starts in one commit.
const BATCH: usize = 128;

impl Confirmer {
    pub(super) fn start(db: Db) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        // A thread of its own, so that what waits while one commit is on its way goes into the next.
        std::thread::Builder::new().name("confirm".to_owned()).spawn(move || write(&db, waiting))?;
        Ok(Self(queue))
    }

    /// False: the row is not as it was, or another session of its kind is live.
    async fn confirm(&self, job: Job) -> Result<bool, StoreError> {
        let unavailable = |reason: &str| StoreError::Unavailable { operation: OPERATION, reason: reason.to_owned() };
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Waiting { job, answer }).map_err(|_| unavailable("too many wait"))?;
        match timeout(TIMEOUT, answered).await {
            Ok(Ok(outcome)) => outcome,
            _ => Err(unavailable("it did not answer in time")),
        }
    }
}

impl Store {
    /// LiveKit has made the room. `None`: there is no such session any more; one that is over stays so.
    pub(crate) async fn go_live(&self, recorded: Recorded, sid: Sid) -> Result<Option<VoiceSession>, StoreError> {
        let id = recorded.session.id;
        if !recorded.replaces
            && let Some(live) = self.go_live_unseen(&recorded, sid.clone()).await?
        {
            return Ok(Some(live));
        }
        Ok(self.apply(id, Event::RoomUp { sid }).await?.map(|(session, _)| session))
    }

    async fn go_live_unseen(&self, recorded: &Recorded, sid: Sid) -> Result<Option<VoiceSession>, StoreError> {
        let json = |session: &VoiceSession| {
            serde_json::to_string(session).map_err(|error| StoreError::bad_row(OPERATION, error))
        };
        let mut session = recorded.session.clone();
        let before = json(&session)?;
        if session.apply(Event::RoomUp { sid }, recorded.now(), &self.rules).is_err() {
            return Ok(None);
        }
        let due_at = session.due_at(&self.rules);
        let job = Job { id: session.id, before, after: json(&session)?, due_at, wake: recorded.keyed };
        if !self.confirmer.confirm(job).await? {
            return Ok(None);
        }
        if let Some(due_at) = due_at {
            self.nudges.send(Nudge::Due(due_at));
        }
        Ok(Some(session))
    }
}

fn write(db: &Db, mut queue: mpsc::Receiver<Waiting>) {
    while let Some(first) = queue.blocking_recv() {
        let mut jobs = vec![first.job];
        let mut answers = vec![first.answer];
        while jobs.len() < BATCH
            && let Ok(next) = queue.try_recv()
        {
            jobs.push(next.job);
            answers.push(next.answer);
        }
        let outcomes = match caught(|| store(db, &jobs)) {
            // One that cannot go live like this must not keep the others from it.
            Err(StoreError::Duplicate { .. }) => jobs.chunks(1).map(|job| alone(db, job)).collect(),
            Ok(done) => done.into_iter().map(Ok).collect(),
            Err(error) => jobs.iter().map(|_| Err(again(&error))).collect::<Vec<_>>(),
        };
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Whoever asked may have gone; the session is live all the same.
            drop(answer.send(outcome));
        }
    }
}

/// A panic as an error: a mistake of ours must not end the writer.
fn caught<T>(store: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(store))
        .unwrap_or_else(|_| Err(StoreError::bad_row(OPERATION, "it panicked")))
}

fn alone(db: &Db, job: &[Job]) -> Result<bool, StoreError> {
    match caught(|| store(db, job)) {
        Err(StoreError::Duplicate { .. }) => Ok(false),
        done => done.map(|done| done == [true]),
    }
}

/// For each whether it went live.
fn store(db: &Db, jobs: &[Job]) -> Result<Vec<bool>, StoreError> {
    // Repeated after a lost answer the statement finds nothing to change, and the careful way finds the session live.
    let ids = match db.write_blocking(OPERATION, |c| match jobs {
        [job] if c.is_postgres() => one(c, job).map(|live| Some(live.then_some(job.id).into_iter().collect())),
        _ => in_one_statement(c, jobs),
    })? {
        Some(ids) => ids,
        None => db.write_blocking(OPERATION, |tx| one_by_one(tx, jobs))?,
    };
    Ok(jobs.iter().map(|job| ids.contains(&job.id)).collect())
}

fn one_by_one(tx: &mut Conn, jobs: &[Job]) -> Result<Vec<GatewaySessionId>, StoreError> {
    let mut live = Vec::with_capacity(jobs.len());
    for job in jobs {
        if one(tx, job)? {
            live.push(job.id);
        }
    }
    Ok(live)
}

fn one(c: &mut Conn, job: &Job) -> Result<bool, StoreError> {
    use voice_sessions::dsl;
    let row = dsl::voice_sessions.find(job.id.db()).filter(dsl::record.eq(&job.before));
    let went_live = on!(c, |c| cached(diesel::update(row).set((
        dsl::record.eq(&job.after),
        dsl::phase.eq("live"),
        dsl::due_at.eq(job.due_at.db())
    )))
    .execute(c))?
        == 1;
    if went_live && job.wake {
        c.notify(topic(job.id));
    }
    Ok(went_live)
}

/// `None` where there is no such statement.
fn in_one_statement(c: &mut Conn, jobs: &[Job]) -> Result<Option<Vec<GatewaySessionId>>, StoreError> {
    let statement = Statement {
        id: jobs.iter().map(|job| job.id.db()).collect(),
        before: jobs.iter().map(|job| job.before.as_str()).collect(),
        after: jobs.iter().map(|job| job.after.as_str()).collect(),
        due_at: jobs.iter().map(|job| job.due_at.db()).collect(),
    };
    let outcome = match &mut c.raw {
        Raw::Pg(pg) => statement.load::<GatewaySessionId>(&mut **pg),
        Raw::Sqlite(_) => return Ok(None),
    };
    let live = c.record(outcome)?;
    // Of a session that nobody repeats nobody knows yet.
    jobs.iter().filter(|job| job.wake && live.contains(&job.id)).for_each(|job| c.notify(topic(job.id)));
    Ok(Some(live))
}

/// One statement whatever the number of sessions, so that it is planned once.
struct Statement<'a> {
    id: Vec<DbId>,
    before: Vec<&'a str>,
    after: Vec<&'a str>,
    due_at: Vec<Option<DbTime>>,
}

impl QueryId for Statement<'_> {
    type QueryId = Statement<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Statement<'_> {
    type SqlType = Uid;
}

impl RunQueryDsl<PgConnection> for Statement<'_> {}

impl QueryFragment<Pg> for Statement<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "UPDATE voice_sessions s SET record = n.after, phase = 'live', due_at = n.due_at FROM (SELECT * FROM unnest(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.before)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.after)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<Moment>>, _>(&self.due_at)?;
        out.push_sql(") AS d (id, before, after, due_at)) n WHERE s.id = n.id AND s.record = n.before RETURNING s.id");
        Ok(())
    }
}

/// The same failure for each of those that it hit.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { operation, reason } => StoreError::Unavailable { operation, reason: reason.clone() },
        StoreError::Busy { operation } => {
            StoreError::Unavailable { operation, reason: "another transaction is in the way".to_owned() }
        }
        other => StoreError::bad_row(OPERATION, other.to_string()),
    }
}
