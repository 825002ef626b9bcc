//! What the edge knows of a client's connection.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use prometheus::IntGauge;

use crate::EdgeProxy;
use crate::domain::client_address::limit_address;
use ensemble_chassis::shares::Share;

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    _share: Option<Share<IpAddr>>,
    /// Whether its address may have it; requests on one too many are refused.
    pub(crate) is_admitted: bool,
    /// A request on it was refused. Requests that were sent ahead are refused, too: the edge and what is before it may not
    /// agree where they begin.
    pub(crate) is_refused: Cell<bool>,
    /// Who is connected, whether or not through the edge's own HTTPS.
    pub(crate) peer: IpAddr,
    pub(crate) is_https: bool,
    gauge: IntGauge,
}

impl Connection {
    /// `socket` is the other side of the connection itself: the edge's own, when it was encrypted.
    pub(crate) fn open(edge: &EdgeProxy, client: SocketAddr, socket: SocketAddr) -> Self {
        let (peer, is_https) = (client.ip(), client != socket);
        let gauge = edge.metrics.connections.clone();
        gauge.inc();
        // Proxies before the edge carry the connections of many clients and are not counted.
        let is_trusted = edge.config.trusted_proxies.iter().any(|network| network.contains(&peer.to_canonical()));
        let share = if is_trusted { None } else { edge.connections.take(limit_address(peer)) };
        Self {
            is_admitted: is_trusted || share.is_some(),
            _share: share,
            is_refused: Cell::new(false),
            peer,
            is_https,
            gauge,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
