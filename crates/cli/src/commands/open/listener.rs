//! Whose program listens at an address of this computer. Another user could do so while the person's own server does not run, or at the
//! other address of `localhost`, and serve a page that takes what the browser is given.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::unistd::geteuid;

/// The addresses that a host of this computer stands for.
pub(super) fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
    literal.map_or_else(|_| loopback.to_vec(), |one| vec![one]).into_iter().map(|ip| (ip, port).into()).collect()
}

/// Whether another user than this one and root listens at exactly this address, as far as this system says (proc_net_tcp(5)).
pub(super) fn is_of_another_user(address: SocketAddr) -> bool {
    users(address).is_some_and(|users| users.into_iter().any(is_other))
}

/// Whether this user or root listens there, and no one else. A system that does not say has no such users.
pub(super) fn is_own(address: SocketAddr) -> bool {
    users(address).is_none_or(|users| !users.is_empty() && !users.into_iter().any(is_other))
}

fn is_other(user: u32) -> bool {
    ![geteuid().as_raw(), 0].contains(&user)
}

/// Those who listen at the address. `None`: this system does not say.
fn users(address: SocketAddr) -> Option<Vec<u32>> {
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    Some(listeners(&fs::read_to_string(table).ok()?, address).collect())
}

/// An address as the table has it: words in the order of this processor's bytes.
fn written(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_ne_bytes));
    words.map(|word| format!("{word:08X}")).collect::<String>() + &format!(":{:04X}", address.port())
}

fn listeners(sockets: &str, address: SocketAddr) -> impl Iterator<Item = u32> {
    const LISTENS: &str = "0A";
    let wanted = written(address);
    sockets.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, user) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
        (*local == wanted && *state == LISTENS).then(|| user.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_user_of_a_listener_at_the_address_is_found() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                       \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1\n\
                       \x20  1: 0100007F:1F90 0100007F:D1F2 01 00000000:00000000 00:00000000 00000000  1002        0 2 1\n\
                       \x20  2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 3 1\n\
                       \x20  3: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 4 1\n";
        let at = |address: &str| listeners(sockets, address.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!((at("127.0.0.1:8080"), at("127.0.0.2:8080"), at("127.0.0.1:80")), (vec![1001], vec![1004], vec![]));
        assert_eq!(written("[::1]:8080".parse().unwrap()), "00000000000000000000000001000000:1F90");
    }

    #[test]
    fn only_a_listener_of_this_user_is_an_own_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(is_own(address) && !is_of_another_user(address));
        drop(listener);
        assert!(!is_own(address), "where nothing listens, anyone can begin to");
    }

    #[test]
    fn localhost_stands_for_both_addresses() {
        let shown = |host| addresses(host, 1).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown("localhost"), ["127.0.0.1:1", "[::1]:1"]);
        assert_eq!([shown("127.0.0.2"), shown("[::1]")], [["127.0.0.2:1"], ["[::1]:1"]]);
    }
}
