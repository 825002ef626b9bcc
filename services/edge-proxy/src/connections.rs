//! What the edge knows of a client's connection, and how its socket is set up.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use prometheus::IntGauge;
use socket2::{SockRef, TcpKeepalive};

use crate::EdgeProxy;
use crate::domain::client_address::limit_address;
use ensemble_chassis::shares::Share;

/// An idle stream sends nothing for long, so the kernel asks whether the other side is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    _share: Option<Share<IpAddr>>,
    /// Whether its address may have it; requests on one too many are refused.
    pub(crate) is_admitted: bool,
    /// A request on it was refused. Requests that were sent ahead are refused, too: the edge and what is before it may not
    /// agree where they begin.
    pub(crate) is_refused: Cell<bool>,
    gauge: IntGauge,
}

impl Connection {
    pub(crate) fn open(edge: &EdgeProxy, peer: IpAddr) -> Self {
        let gauge = edge.metrics.connections.clone();
        gauge.inc();
        // Proxies before the edge carry the connections of many clients and are not counted.
        let is_trusted = edge.config.trusted_proxies.iter().any(|network| network.contains(&peer.to_canonical()));
        let share = if is_trusted { None } else { edge.connections.take(limit_address(peer)) };
        Self { is_admitted: is_trusted || share.is_some(), _share: share, is_refused: Cell::new(false), gauge }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// A client that vanished is noticed within a minute. One that takes nothing of its answer for `stall` loses the
/// connection: the kernel counts bytes that were not acknowledged and windows that stay closed (tcp(7), TCP_USER_TIMEOUT).
pub(crate) fn prepare(connection: &TcpStream, stall: Duration) {
    let socket = SockRef::from(connection);
    let prepared = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY));
    #[cfg(target_os = "linux")]
    let prepared = prepared.and_then(|()| socket.set_tcp_user_timeout(Some(stall)));
    if let Err(error) = prepared {
        tracing::debug!(%error, ?stall, "A socket could not be set up");
    }
}
