//! How the edge sets up its sockets, towards clients and towards services.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// An idle stream says nothing for long; so the kernel asks whether the other side is still there.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_secs(10);
/// What was sent and not acknowledged for so long ends the connection; by default that takes a quarter of an hour.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Small answers leave at once, and a side that vanished without a word is noticed within a minute.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(ASK_AFTER).with_interval(ASK_EVERY);
    let prepared = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    #[cfg(target_os = "linux")]
    let prepared = prepared.and_then(|()| socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)));
    if let Err(error) = prepared {
        tracing::debug!(%error, "A socket could not be set up");
    }
}
