//! The addresses of this machine at which others can reach it.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// The addresses of the interfaces that are up, without loopback and link-local ones, IPv4 first. Empty when the system
/// does not tell.
pub(crate) fn of_this_machine() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let mut found: Vec<IpAddr> = interfaces
        .filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
        })
        .filter(|address| is_for_others(*address))
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    found
}

fn is_for_others(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        // A link-local address needs the name of an interface, which an origin cannot have.
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_addresses_are_not_for_others() {
        for (address, expected) in [
            ("192.0.2.2", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("169.254.1.1", false),
            ("::1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_for_others(address.parse().unwrap()), expected, "{address}");
        }
        assert!(of_this_machine().into_iter().all(is_for_others));
    }
}
