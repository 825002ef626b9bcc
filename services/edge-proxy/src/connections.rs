//! How many connections one address may have, and how their sockets are set up.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use prometheus::IntGauge;
use socket2::{SockRef, TcpKeepalive};

use crate::domain::client_address::{Network, limit_address};

/// An idle stream sends nothing for long, so the kernel asks whether the other side is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// Counts connections by address. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Connections {
    per_address: usize,
    /// Proxies before the edge carry the connections of many clients and are not counted.
    trusted: Vec<Network>,
    open: Mutex<HashMap<IpAddr, usize>>,
    gauge: IntGauge,
}

/// One connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    connections: Arc<Connections>,
    address: Option<IpAddr>,
    /// Whether its address may have it; requests on one too many are refused.
    pub(crate) is_admitted: bool,
    /// A request on it was refused. Requests that were sent ahead are refused, too: the edge and what is before it may not
    /// agree where they begin.
    pub(crate) is_refused: Cell<bool>,
}

impl Connections {
    pub(crate) fn new(per_address: usize, trusted: Vec<Network>, gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self { per_address, trusted, open: Mutex::default(), gauge })
    }

    pub(crate) fn open(self: &Arc<Self>, peer: IpAddr) -> Connection {
        self.gauge.inc();
        let is_trusted = self.trusted.iter().any(|network| network.contains(peer));
        let address = (!is_trusted).then(|| limit_address(peer));
        let is_admitted = address.is_none_or(|address| {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let count = open.entry(address).or_default();
            *count += 1;
            *count <= self.per_address
        });
        Connection { connections: Arc::clone(self), address, is_admitted, is_refused: Cell::new(false) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.gauge.dec();
        let Some(address) = self.address else { return };
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&address);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        let gauge = IntGauge::new("open", "open").expect("a gauge");
        let connections = Connections::new(2, trusted, gauge.clone());
        let held: Vec<_> = (0..3).map(|_| connections.open(ip("1.1.1.1"))).collect();
        assert_eq!(held.iter().map(|one| one.is_admitted).collect::<Vec<_>>(), [true, true, false]);
        assert!(connections.open(ip("2.2.2.2")).is_admitted);
        let proxied: Vec<_> = (0..9).map(|_| connections.open(ip("10.0.0.1"))).collect();
        assert!(proxied.iter().all(|one| one.is_admitted));
        assert_eq!(gauge.get(), 12);
        drop((held, proxied));
        assert!(connections.open(ip("1.1.1.1")).is_admitted);
        assert_eq!(gauge.get(), 0);
        assert!(connections.open.lock().expect("not poisoned").is_empty(), "nothing is remembered");
    }
}
