//! Connections that are kept for the next request, for one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::addresses::Addresses;
use super::connection::Connection;
use super::failure::Failure;

/// How long an address is spared whose service said that it is going. It serves what comes all the same, and says so again.
const SPARED: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    pub connect: Duration,
    /// Shorter than the services keep theirs, so that it is the edge that closes and no request meets a closing door.
    pub idle: Duration,
    /// Connections kept to one address.
    pub kept: usize,
}

/// The connections of one thread to one service.
#[derive(Debug)]
pub struct Pool {
    addresses: Addresses,
    limits: PoolLimits,
    idle: RefCell<HashMap<SocketAddr, Vec<Idle>>>,
    /// Whose service said that it is going, and when.
    leaving: RefCell<HashMap<SocketAddr, Instant>>,
    turn: Cell<usize>,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

/// A connection to send one request on.
pub struct Loan {
    pub connection: Box<Connection>,
    /// It has carried a request before, and may have died since without our knowing.
    pub is_used: bool,
}

impl Pool {
    pub fn new(addresses: Addresses, limits: PoolLimits) -> Rc<Self> {
        Rc::new(Self { addresses, limits, idle: RefCell::default(), leaving: RefCell::default(), turn: Cell::new(0) })
    }

    /// A connection to the address whose turn it is, or to the next one that takes it. An address that refuses has no
    /// service any more, and one that does not answer is most likely that of a replica that went a moment ago; nothing was
    /// sent to either. Those that are going come last.
    ///
    /// # Errors
    /// Nothing was sent anywhere.
    pub async fn borrow(&self, fresh_only: bool) -> Result<Loan, Failure> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let mut tried = 0;
        let mut failure = Failure::NowhereToGo;
        loop {
            // A look-up that ends between two tries changes the list; the position stays good enough.
            let (address, is_last_resort) = {
                let addresses = self.addresses.borrow();
                let at = turn.wrapping_add(tried).checked_rem(addresses.len());
                match at.and_then(|at| addresses.get(at).copied()) {
                    Some(address) if tried < 2 * addresses.len() => (address, tried >= addresses.len()),
                    _ => return Err(failure),
                }
            };
            if self.is_leaving(address) != is_last_resort {
                tried += 1;
                continue;
            }
            if !fresh_only && let Some(connection) = self.take_idle(address) {
                return Ok(Loan { connection, is_used: true });
            }
            match timeout(self.limits.connect, TcpStream::connect(address)).await {
                Ok(Ok(io)) => {
                    crate::sockets::prepare(&io);
                    return Ok(Loan { connection: Connection::new(io, address), is_used: false });
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Ok(Err(error)) => failure = Failure::Connect(error),
                Err(_) => failure = Failure::ConnectTimeout,
            }
            tried += 1;
        }
    }

    /// A service said that it closes the connection: it is draining. What is kept to it would soon be closed just as a
    /// request is on its way.
    pub fn leave(&self, address: SocketAddr) {
        self.idle.borrow_mut().remove(&address);
        self.leaving.borrow_mut().insert(address, Instant::now());
    }

    fn is_leaving(&self, address: SocketAddr) -> bool {
        self.leaving.borrow().get(&address).is_some_and(|since| since.elapsed() < SPARED)
    }

    /// Keeps a connection whose answer was read to the end.
    pub fn give_back(&self, connection: Box<Connection>) {
        if self.is_leaving(connection.address) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let kept = idle.entry(connection.address).or_default();
        if kept.len() < self.limits.kept {
            kept.push(Idle { connection, since: Instant::now() });
        }
    }

    /// The one used last is the least likely to have been closed.
    fn take_idle(&self, address: SocketAddr) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(&address)?;
        while let Some(Idle { connection, since }) = kept.pop() {
            if since.elapsed() > self.limits.idle {
                // All that were put there before it are older.
                kept.clear();
                return None;
            }
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Closes what has been idle too long, and what leads to addresses that are no longer there.
    pub fn sweep(&self) {
        let addresses = self.addresses.borrow().clone();
        self.leaving.borrow_mut().retain(|_, since| since.elapsed() < SPARED);
        self.idle.borrow_mut().retain(|address, kept| {
            kept.retain(|idle| idle.since.elapsed() <= self.limits.idle && idle.connection.is_quiet());
            !kept.is_empty() && addresses.contains(address)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpSocket};
    use tokio::sync::watch;

    use super::*;

    fn pool(addresses: &[SocketAddr]) -> Rc<Pool> {
        let (_, known) = watch::channel(Arc::from(addresses));
        let limits = PoolLimits { connect: Duration::from_millis(300), idle: Duration::from_secs(30), kept: 4 };
        Pool::new(known, limits)
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Where nobody listens.
    async fn refusing() -> SocketAddr {
        listener().await.1
    }

    async fn reached(pool: &Pool, times: usize) -> Vec<SocketAddr> {
        let mut reached = Vec::new();
        for _ in 0..times {
            reached.push(pool.borrow(true).await.expect("somebody listens").connection.address);
        }
        reached
    }

    #[tokio::test]
    async fn all_addresses_are_used_in_turn() {
        let ((_one, first), (_other, second)) = (listener().await, listener().await);
        assert_eq!(reached(&pool(&[first, second]), 4).await, [first, second, first, second]);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_passed_by() {
        let (_one, good) = listener().await;
        let gone = refusing().await;
        assert_eq!(reached(&pool(&[gone, good]), 4).await, [good; 4]);
        assert!(matches!(pool(&[gone, refusing().await]).borrow(false).await, Err(Failure::NowhereToGo)));
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_passed_by() {
        // Its queue is full and nobody accepts: what else knocks hears nothing.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let full = socket.listen(1).unwrap();
        let silent = full.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(connected) = timeout(Duration::from_millis(300), TcpStream::connect(silent)).await {
            queued.push(connected.unwrap());
            assert!(queued.len() < 1_000, "the queue has no end");
        }
        let (_one, good) = listener().await;
        assert_eq!(reached(&pool(&[silent, good]), 2).await, [good; 2]);
        assert!(matches!(pool(&[silent]).borrow(false).await, Err(Failure::ConnectTimeout)));
    }

    #[tokio::test]
    async fn one_that_is_going_is_asked_last() {
        let ((_one, staying), (_other, going)) = (listener().await, listener().await);
        let both = pool(&[staying, going]);
        both.leave(going);
        assert_eq!(reached(&both, 4).await, [staying; 4]);
        let alone = pool(&[going]);
        alone.leave(going);
        assert_eq!(reached(&alone, 1).await, [going], "it still serves what comes");
    }
}
