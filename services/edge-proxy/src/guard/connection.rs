//! What the guard of a connection and the answers on it tell each other.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Waker;

use tokio::time::Instant;

use crate::domain::refusal::Refusal;

/// One client connection, shared by its guard and the requests on it. All of it lives on one thread.
#[derive(Debug)]
pub struct Connection {
    peer: IpAddr,
    verdict: Cell<Option<Refusal>>,
    unanswered: Cell<usize>,
    quiet_since: Cell<Instant>,
    waiting: RefCell<Option<Waker>>,
}

impl Connection {
    pub fn new(peer: IpAddr) -> Rc<Self> {
        Rc::new(Self {
            peer,
            verdict: Cell::new(None),
            unanswered: Cell::new(0),
            quiet_since: Cell::new(Instant::now()),
            waiting: RefCell::default(),
        })
    }

    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Why the guard lets nothing more through. Nothing follows it on this connection.
    pub fn verdict(&self) -> Option<Refusal> {
        self.verdict.get()
    }

    pub(super) fn condemn(&self, refusal: Refusal) {
        self.verdict.set(Some(refusal));
    }

    /// A head has passed; its answer is still to come.
    pub(super) fn expect_answer(&self) {
        self.unanswered.set(self.unanswered.get() + 1);
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered.get() > 0
    }

    /// The guard holds a request that waits for the answer to the one before it.
    pub(super) fn wake_when_answered(&self, waker: &Waker) {
        self.waiting.replace(Some(waker.clone()));
    }

    /// Since when nothing has been asked or answered.
    pub(super) fn quiet_since(&self) -> Instant {
        self.quiet_since.get()
    }

    /// To be dropped with the last byte of an answer.
    pub fn answering(self: &Rc<Self>) -> Answering {
        Answering(Rc::clone(self))
    }
}

/// An answer that is not out yet.
#[derive(Debug)]
pub struct Answering(Rc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.unanswered.set(self.0.unanswered.get().saturating_sub(1));
        self.0.quiet_since.set(Instant::now());
        if let Some(waker) = self.0.waiting.take() {
            waker.wake();
        }
    }
}
