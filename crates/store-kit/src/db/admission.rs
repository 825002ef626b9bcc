//! What is the same for every job: its turn, its connection, and the end of its wait. It is apart from `Db::run`, which is compiled for
//! each kind of result.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::Db;
use crate::deadline::{Deadline, Deadlines};
use crate::error::ConnState;
use crate::pool::{Pool, Turn};
use crate::{Conn, StoreError};

/// What a job holds while it runs.
pub(super) struct Admitted {
    pub(super) deadline: Deadline,
    _turn: Option<Turn>,
    _permit: OwnedSemaphorePermit,
}

fn late(operation: &'static str, reason: &str) -> StoreError {
    StoreError::Unavailable { operation, reason: reason.to_owned() }
}

impl Db {
    /// Waits for the caller's turn and for a connection.
    pub(super) async fn admit(&self, pool: &Pool, operation: &'static str) -> Result<Admitted, StoreError> {
        let (reach, begun) = (&self.inner.reach, Instant::now());
        let Ok(turn) = timeout(reach.limit(reach.timeout()), pool.turn()).await else {
            return Err(late(operation, "its turn did not come in time"));
        };
        // The service's own work holds up no caller, and repeating it may cost more than waiting.
        let limit = if turn.is_some() { reach.limit(reach.timeout()) } else { reach.timeout() };
        let deadline = Deadline::new(begun, limit);
        let permit = tokio::select! {
            biased;
            permit = pool.permit(operation) => permit?,
            () = deadline.passed() => return Err(late(operation, "all connections are in use")),
        };
        self.inner.metrics.waited(deadline.elapsed());
        Ok(Admitted { deadline, _turn: turn, _permit: permit })
    }

    /// The job has not ended in time.
    pub(super) fn unanswered(&self, operation: &'static str, deadline: &Deadline) -> StoreError {
        if deadline.elapsed() >= self.inner.reach.timeout() {
            self.inner.reach.unanswered_since(deadline.start());
        }
        late(operation, "it did not answer in time")
    }

    pub(super) fn connect(
        &self,
        pool: &Pool,
        operation: &'static str,
        deadlines: &Deadlines,
    ) -> Result<Conn, StoreError> {
        let begun = Instant::now();
        match pool.take(operation) {
            // Connecting took so long that the caller got an error, so nothing may happen any more.
            Ok(_) if deadlines.have_passed() => Err(late(operation, "the caller has timed out")),
            Ok(raw) => Ok(Conn::new(raw, operation, deadlines.clone())),
            Err(error) => {
                self.inner.reach.unanswered_since(begun);
                Err(error)
            }
        }
    }

    pub(super) fn give_back(&self, pool: &Pool, mut conn: Conn) -> ConnState {
        let state = conn.state();
        if state == ConnState::Broken {
            conn.raw.mark_broken();
            pool.close_idle();
        } else {
            self.inner.reach.answered();
        }
        state
    }
}
