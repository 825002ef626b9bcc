//! What the edge knows of a request in addition to its head: who sent it, from where, and what it counts as.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use ensemble_chassis::auth::bearer;
use ensemble_chassis::entrance::{Entrance, is_direct, last_hop};

use crate::EdgeProxy;
use crate::connections::Connection;
use crate::domain::client_address;
use crate::domain::route_table::{self, Class, Upstream};
use crate::limits::LimitKey;

/// What the edge knows of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) client: IpAddr,
    pub(crate) entrance: Entrance,
    /// From a program on this computer.
    pub(crate) is_local: bool,
    pub(crate) is_https: bool,
    /// The service that answers, and the prefix of its paths; none for the edge's own pages and for paths that do not exist.
    pub(crate) route: Option<(&'static str, Upstream)>,
    pub(crate) is_long_poll: bool,
    /// Whether the request may be sent again when its connection broke before the answer.
    pub(crate) is_repeatable: bool,
    pub(crate) class: Class,
    pub(crate) limit_key: LimitKey,
}

impl RequestContext {
    pub(crate) fn of(request: &ServiceRequest, edge: &EdgeProxy) -> Self {
        let connection = request.conn_data::<Rc<Connection>>();
        let peer = connection.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |connection| connection.peer);
        let entrance = connection.map_or(Entrance::Network, |connection| connection.entrance);
        let headers = request.headers();
        let forwarded: Vec<&str> = headers.get_all("x-forwarded-for").filter_map(|value| value.to_str().ok()).collect();
        let client = match entrance {
            Entrance::Network => client_address::client(peer, forwarded.into_iter(), &edge.config.trusted_proxies),
            Entrance::Loopback => peer.to_canonical(),
            // A request without one is refused.
            Entrance::Proxy => last_hop(headers).unwrap_or(peer),
        };
        let is_https = connection.is_some_and(|connection| connection.is_https)
            || edge.config.public_base_url.starts_with("https://")
            || (client != peer.to_canonical()
                && headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes() == b"https"));
        // A JWT begins with an encoded brace; anything else, a voice key for instance, need not be parsed.
        let token = bearer(request.request()).filter(|token| token.starts_with("ey"));
        let caller = token.and_then(|token| edge.auth.identify(token));
        // actix has decoded letters and digits that were percent-encoded without need, as it does in the services, so that
        // the edge classifies the path by which they route.
        let path = request.match_info().as_str();
        Self {
            client,
            entrance,
            is_local: entrance == Entrance::Loopback && is_direct(headers),
            is_https,
            route: route_table::route(path),
            is_long_poll: route_table::is_long_poll(path),
            is_repeatable: route_table::is_repeatable(request.method().is_safe(), path),
            class: route_table::class(*request.method() == Method::POST, path),
            limit_key: LimitKey::new(caller.as_ref(), client),
        }
    }
}
