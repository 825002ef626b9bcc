//! Connections at rest, and who may use one.
//!
//! A semaphore hands out the right to a connection and is waited for without a thread; the connections themselves lie on
//! a stack, so that the warmest is used first and spare ones are never opened. A connection is not tried before use
//! (that would cost a round trip each time): [`crate::Db`] runs a job again when its connection turns out to be dead.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connect::Connector;
use crate::error::Verdict;
use crate::{Conn, StoreError};

pub(crate) struct Pool {
    connector: Connector,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Conn>>,
    wait: Duration,
}

impl Pool {
    pub(crate) fn new(connector: Connector, size: usize, wait: Duration) -> Arc<Self> {
        Arc::new(Self { connector, permits: Arc::new(Semaphore::new(size)), idle: Mutex::new(Vec::new()), wait })
    }

    /// The right to one connection.
    pub(crate) async fn enter(&self, operation: &'static str) -> Result<OwnedSemaphorePermit, StoreError> {
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
        if conn.verdict() == Verdict::Lost {
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
