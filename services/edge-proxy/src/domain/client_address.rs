//! Whose request it is, when other proxies stand before the edge.
//!
//! Any client can write `X-Forwarded-For`. So it is read from the right, and only as far as the hops that were configured as
//! trusted; the first address that is not one of them is the client.

use std::net::{AddrParseError, IpAddr};

use ipnet::IpNet;

/// A range of addresses, written as `10.0.0.0/8`, `fd00::/8` or one address. Any other text is an error.
pub fn network(text: &str) -> Result<IpNet, AddrParseError> {
    text.parse().or_else(|_| text.parse().map(|address: IpAddr| address.to_canonical().into()))
}

/// The client behind `peer`, given the `X-Forwarded-For` fields in the order they came.
pub fn client<'a>(peer: IpAddr, forwarded_for: impl DoubleEndedIterator<Item = &'a str>, trusted: &[IpNet]) -> IpAddr {
    let mut client = peer.to_canonical();
    for hop in forwarded_for.rev().flat_map(|field| field.rsplit(',')) {
        if !trusted.iter().any(|network| network.contains(&client)) {
            break;
        }
        let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| network(text).expect("a network")).collect()
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
            assert!(network(text).is_err(), "{text}");
        }
        let all = network("0.0.0.0/0").expect("a network");
        assert!(all.contains(&"1.2.3.4".parse::<IpAddr>().expect("an address")));
        assert!(!all.contains(&"2001:db8::1".parse::<IpAddr>().expect("an address")));
        let one = network("::1").expect("a network");
        assert!(one.contains(&"::1".parse::<IpAddr>().expect("an address")));
        assert!(!one.contains(&"::2".parse::<IpAddr>().expect("an address")));
    }

    #[test]
    fn an_address_that_is_not_trusted_ends_the_search() {
        assert_eq!(client_of("10.1.1.1", &["6.6.6.6, 7.7.7.7"], &["10.0.0.0/8"]), "7.7.7.7");
        assert_eq!(client_of("10.1.1.1", &["6.6.6.6, ::ffff:10.2.2.2"], &["10.0.0.0/8"]), "6.6.6.6");
        assert_eq!(client_of("10.1.1.1", &["6.6.6.6, x, 10.2.2.2"], &["10.0.0.0/8"]), "10.2.2.2");
    }
}
