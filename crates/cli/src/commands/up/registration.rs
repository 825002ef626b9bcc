//! Who may make an account at a server that `ensemble up` runs.

use super::Up;
use crate::environment::environment;
use crate::failure::is_loopback;

/// What may name a public address.
pub(super) const OF_ADDRESS: [&str; 4] =
    ["PUBLIC_BASE_URL", "EDGE_PROXY_PUBLIC_BASE_URL", "PUBLIC_ORIGINS", "IDENTITY_PUBLIC_ORIGINS"];
pub(super) const OF_REGISTRATION: [&str; 2] = ["REGISTRATION", "IDENTITY_REGISTRATION"];

impl Up {
    /// Whether people on other computers reach the server.
    pub(super) fn is_for_others(&self, has_tunnel: bool) -> bool {
        let of_environment = OF_ADDRESS.into_iter().filter_map(|name| environment().remove(name));
        let addresses: Vec<String> = self.public_url.iter().cloned().chain(of_environment).collect();
        let mut addresses =
            addresses.iter().flat_map(|listed| listed.split(',')).map(|one| one.trim().trim_end_matches('/'));
        let is_public = addresses.any(|one| !one.is_empty() && !is_loopback(one));
        let tls = self.tls_cert.as_ref().map(|_| self.tls_listen);
        let mut listeners = [Some(self.listen), tls].into_iter().flatten();
        has_tunnel || is_public || listeners.any(|at| !at.ip().to_canonical().is_loopback())
    }
}

/// Whether it lets everyone make an account.
pub(super) fn is_open(name: &str) -> bool {
    environment().get(name).is_some_and(|value| value == "open")
}

pub(super) fn is_set(name: &str) -> bool {
    environment().get(name).is_some_and(|value| !value.is_empty())
}
