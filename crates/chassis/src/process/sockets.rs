//! How many sockets a process may have, and how those of clients are set up.

use std::time::Duration;

use actix_web::rt::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// An idle stream sends nothing for long, so the kernel asks whether the other side is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// A client that vanished is noticed within a minute. One that takes nothing of its answer for `stall` loses the
/// connection: the kernel counts bytes that were not acknowledged and windows that stay closed (tcp(7), TCP_USER_TIMEOUT).
pub fn prepare_connection(connection: &TcpStream, stall: Duration) {
    let socket = SockRef::from(connection);
    let prepared = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY));
    #[cfg(target_os = "linux")]
    let prepared = prepared.and_then(|()| socket.set_tcp_user_timeout(Some(stall)));
    if let Err(error) = prepared {
        tracing::debug!(%error, ?stall, "A socket could not be set up");
    }
}

/// Each stream is two files, so the limit that a shell sets is soon reached; a program may raise it up to the hard one.
pub fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "The limit of open files stays as it is");
    }
}
