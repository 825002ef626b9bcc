//! Connections at rest, and who may use one.
//!
//! A semaphore hands out the right to a connection and is waited for without a thread; the connections themselves lie on
//! a stack, so that the warmest is used first and spare ones are never opened. A connection is not tried before use
//! (that would cost a round trip each time): [`crate::Db`] runs a job again when its connection turns out to be dead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connect::Connector;
use crate::error::ConnState;
use crate::metrics::Waiting;
use crate::{Conn, StoreError};

pub(crate) struct Pool {
    connector: Connector,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Conn>>,
    limit: usize,
    waiting: Arc<AtomicUsize>,
    wait: Duration,
}

/// How much of a pool is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) limit: usize,
    pub(crate) used: usize,
    pub(crate) idle: usize,
    pub(crate) waiting: usize,
}

impl Pool {
    pub(crate) fn new(connector: Connector, size: usize, wait: Duration) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(size));
        let (idle, waiting) = (Mutex::new(Vec::new()), Arc::default());
        Arc::new(Self { connector, permits, idle, limit: size, waiting, wait })
    }

    /// `postgresql` or `sqlite`, as the semantic conventions for spans call them.
    pub(crate) fn system(&self) -> &'static str {
        match self.connector {
            Connector::Postgres { .. } => "postgresql",
            Connector::SqliteReader(_) | Connector::SqliteWriter(_) => "sqlite",
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            limit: self.limit,
            used: self.limit.saturating_sub(self.permits.available_permits()),
            idle: self.idle.lock().map_or(0, |idle| idle.len()),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    /// The right to one connection.
    pub(crate) async fn enter(&self, operation: &'static str) -> Result<OwnedSemaphorePermit, StoreError> {
        let _waiting = Waiting::new(&self.waiting);
        match timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(StoreError::Unavailable { operation, reason: "all connections are in use".to_owned() }),
        }
    }

    /// A connection that was used before, or a new one. Blocks while connecting.
    pub(crate) fn take(&self, operation: &'static str) -> Result<Conn, StoreError> {
        match self.idle.lock().ok().and_then(|mut idle| idle.pop()) {
            Some(conn) => Ok(conn),
            None => self.connector.connect(operation),
        }
    }

    pub(crate) fn give_back(&self, conn: Conn) {
        if conn.state() == ConnState::Broken {
            // When one is dead the others most likely are, too: whatever killed it killed them.
            self.forget_idle();
        } else if let Ok(mut idle) = self.idle.lock() {
            idle.push(conn);
        }
    }

    pub(crate) fn forget_idle(&self) {
        let dead = self.idle.lock().map(|mut idle| std::mem::take(&mut *idle));
        drop(dead);
    }
}
