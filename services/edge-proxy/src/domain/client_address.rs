//! Whose request it is, when other proxies stand before the edge.
//!
//! Any client can write `X-Forwarded-For`. So it is read from the right, and only as far as the hops that were configured as
//! trusted; the first address that is not one of them is the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, written as `10.0.0.0/8`, `fd00::/8` or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    mask: u128,
}

/// The text is not a range of addresses.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address or a range such as 10.0.0.0/8")]
pub struct NotANetwork(String);

impl Network {
    pub fn contains(self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.address
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let bad = || NotANetwork(text.to_owned());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width: u32 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(width), str::parse).map_err(|_| bad())?;
        let host_bits = width.checked_sub(prefix).ok_or_else(bad)?;
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        Ok(Self { address: bits(address) & mask, mask })
    }
}

/// IPv4 as mapped into IPv6, so that one comparison serves both and `::ffff:10.0.0.1` is 10.0.0.1.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The client behind `peer`, given the `X-Forwarded-For` fields in the order they came.
pub fn client<'a>(
    peer: IpAddr,
    forwarded_for: impl DoubleEndedIterator<Item = &'a str>,
    trusted: &[Network],
) -> IpAddr {
    let mut client = peer.to_canonical();
    for hop in forwarded_for.rev().flat_map(|field| field.rsplit(',')) {
        if !trusted.iter().any(|network| network.contains(client)) {
            break;
        }
        let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
    }
    client
}

/// What one household or machine is counted as: an IPv4 address, or the /64 that IPv6 gives to one link.
pub fn limit_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits())),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    }

    fn client_of(peer: &str, fields: &[&str], trusted: &[&str]) -> String {
        client(peer.parse().expect("an address"), fields.iter().copied(), &networks(trusted)).to_string()
    }

    #[test]
    fn without_trusted_hops_the_peer_is_the_client() {
        assert_eq!(client_of("9.9.9.9", &["1.1.1.1"], &[]), "9.9.9.9");
        assert_eq!(client_of("::ffff:9.9.9.9", &[], &[]), "9.9.9.9");
    }

    #[test]
    fn trusted_hops_are_skipped_from_the_right() {
        let trusted = ["10.0.0.0/8", "fd00::/8"];
        assert_eq!(client_of("10.1.1.1", &["6.6.6.6, 1.1.1.1"], &trusted), "1.1.1.1");
        assert_eq!(client_of("10.1.1.1", &["6.6.6.6", "1.1.1.1, 10.2.2.2"], &trusted), "1.1.1.1");
        assert_eq!(client_of("fd00::1", &["2001:db8::5"], &trusted), "2001:db8::5");
        assert_eq!(client_of("10.1.1.1", &["nonsense"], &trusted), "10.1.1.1");
        assert_eq!(client_of("10.1.1.1", &[], &trusted), "10.1.1.1");
    }

    #[test]
    fn networks_parse_or_say_why_not() {
        for text in ["10.0.0.0/33", "x", "10.0.0.0/x", "::/129", ""] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(all.contains("1.2.3.4".parse().expect("an address")));
        assert!(!all.contains("2001:db8::1".parse().expect("an address")));
        let one: Network = "::1".parse().expect("a network");
        assert!(one.contains("::1".parse().expect("an address")));
        assert!(!one.contains("::2".parse().expect("an address")));
    }

    #[test]
    fn ipv6_is_counted_by_link() {
        let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().expect("an address");
        assert_eq!(limit_address(address).to_string(), "2001:db8:1:2::");
    }
}
