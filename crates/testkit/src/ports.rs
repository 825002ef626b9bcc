//! Ports for programs that are started later.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

/// Sockets that are bound and do not listen. Until this process ends, the system gives their ports to no other socket that
/// asks for any port, neither to one that listens nor to one that connects. A server can be started to listen there, because
/// servers set `SO_REUSEADDR`.
static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that stays free until the caller's program listens there.
pub fn free_port() -> u16 {
    hold().unwrap_or_else(|error| panic!("no free port: {error}"))
}

/// The same with its host.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn hold() -> std::io::Result<u16> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let port = socket.local_addr()?.port();
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    Ok(port)
}
