//! What the edge knows of a client's connection.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use ensemble_chassis::entrance::Entrance;
use ensemble_chassis::process::TlsLimits;
use ensemble_chassis::shares::{Share, limit_address};
use prometheus::IntGauge;

use crate::EdgeProxy;
use crate::config::Config;

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    _share: Option<Share<IpAddr>>,
    /// Whether its address may have it; requests on one too many are refused.
    pub(crate) is_admitted: bool,
    /// A request on it was refused. Requests that were sent ahead are refused, too: the edge and what is before it may not
    /// agree where they begin.
    pub(crate) is_refused: Cell<bool>,
    /// The connected clients, whether or not through the edge's own HTTPS.
    pub(crate) peer: IpAddr,
    pub(crate) entrance: Entrance,
    pub(crate) is_https: bool,
    gauge: IntGauge,
}

impl Connection {
    /// `socket` is the other side of the connection itself: the edge's own, when it was encrypted. `at` is this side.
    pub(crate) fn open(edge: &EdgeProxy, client: SocketAddr, socket: SocketAddr, at: SocketAddr) -> Self {
        let (peer, is_https) = (client.ip(), client != socket);
        // HTTPS ends on loopback, too, and other computers reach it.
        let entrance = if is_https { Entrance::Network } else { edge.entrances.of(at) };
        let gauge = edge.metrics.connections.clone();
        gauge.inc();
        let holder = holder(if entrance == Entrance::Network { &edge.config.trusted_proxies } else { &[] }, peer);
        let share = holder.and_then(|holder| edge.connections.of(entrance).take(holder));
        Self {
            is_admitted: holder.is_none() || share.is_some(),
            _share: share,
            is_refused: Cell::new(false),
            peer,
            entrance,
            is_https,
            gauge,
        }
    }
}

/// For whom a connection counts. Proxies before the edge carry the connections of many clients and are not counted.
fn holder(trusted: &[ipnet::IpNet], peer: IpAddr) -> Option<IpAddr> {
    let is_trusted = trusted.iter().any(|network| network.contains(&peer.to_canonical()));
    (!is_trusted).then(|| limit_address(peer))
}

/// The same bounds for the edge's own HTTPS, whose connections count from their first byte.
pub(crate) fn of_https(config: &Config) -> TlsLimits {
    let trusted = config.trusted_proxies.clone();
    TlsLimits::by(config.connections_per_address, config.send_stall, move |peer| holder(&trusted, peer))
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
