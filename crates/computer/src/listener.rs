//! Whose program answers at an address of this computer. Another user could listen while the person's own server does not run, or at the
//! other address of `localhost`, and serve a page that takes what the browser is given.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ensemble_client::Client;
use nix::unistd::geteuid;

/// Whose a listener is, as far as this system says (proc_net_tcp(5)).
#[derive(Debug, PartialEq, Eq)]
pub enum Listener {
    /// This user's or root's, at exactly the address. A connection gets to no other one. With the numbers of its sockets.
    Own(Vec<String>),
    /// This user's or root's at all addresses, or it is not known.
    Perhaps,
    AnotherUser,
    Missing,
}

/// Whether this user's program listens at an address.
pub fn is_own(address: SocketAddr) -> bool {
    matches!(at(address), Listener::Own(_))
}

/// The sockets of the server, if it is a program of this user at an address that leads nowhere else. `localhost` may lead to two programs.
pub fn own_sockets(server: &Client) -> Option<Vec<String>> {
    let addresses = if server.is_on_loopback() { addresses_of(server) } else { Vec::new() };
    match addresses[..] {
        [address] => match at(address) {
            Listener::Own(sockets) => Some(sockets),
            _ => None,
        },
        _ => None,
    }
}

/// Those of a server on this computer.
pub fn addresses_of(server: &Client) -> Vec<SocketAddr> {
    let base = server.base();
    addresses(base.host_str().unwrap_or_default(), base.port_or_known_default().unwrap_or_default())
}

/// The addresses that a host of this computer stands for.
fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
    literal.map_or_else(|_| loopback.to_vec(), |one| vec![one]).into_iter().map(|ip| (ip, port).into()).collect()
}

/// Who listens at an address.
pub fn at(address: SocketAddr) -> Listener {
    let [v4, v6] = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    match v4 {
        Ok(v4) => judged(&(v4 + &v6.unwrap_or_default()), address, geteuid().as_raw()),
        Err(_) if cfg!(target_os = "linux") => Listener::Perhaps,
        // This system has no such table.
        Err(_) => Listener::Own(Vec::new()),
    }
}

fn judged(sockets: &str, address: SocketAddr, own: u32) -> Listener {
    let found = |ips: &[IpAddr]| -> Vec<(u32, String)> {
        ips.iter().flat_map(|ip| listeners(sockets, (*ip, address.port()).into())).collect()
    };
    let (exact, all) = match address.ip() {
        IpAddr::V4(ip) => {
            let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into()];
            (vec![ip.into(), ip.to_ipv6_mapped().into()], [&all[..], &[Ipv6Addr::UNSPECIFIED.into()]].concat())
        }
        ip @ IpAddr::V6(_) => (vec![ip], vec![Ipv6Addr::UNSPECIFIED.into()]),
    };
    let is_own = |found: &[(u32, String)]| found.iter().all(|(user, _)| [own, 0].contains(user));
    // A connection gets to a listener at its very address first.
    match (found(&exact), found(&all)) {
        (exact, _) if !exact.is_empty() && is_own(&exact) => {
            let sockets: BTreeSet<String> = exact.into_iter().map(|(_, socket)| socket).collect();
            Listener::Own(sockets.into_iter().collect())
        }
        (exact, all) if exact.is_empty() && all.is_empty() => Listener::Missing,
        (exact, all) if exact.is_empty() && is_own(&all) => Listener::Perhaps,
        _ => Listener::AnotherUser,
    }
}

/// The user and the number of each listening socket at an address.
fn listeners(sockets: &str, address: SocketAddr) -> impl Iterator<Item = (u32, String)> {
    const LISTENS: &str = "0A";
    let wanted = written(address);
    sockets.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, user, socket) = (fields.get(1)?, fields.get(3)?, fields.get(7)?, fields.get(9)?);
        (*local == wanted && *state == LISTENS).then(|| Some((user.parse().ok()?, (*socket).to_owned())))?
    })
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn row(local: &str, state: &str, user: u32) -> String {
        format!(
            "  0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {user}        0 7{user} 1\n"
        )
    }

    #[test]
    fn a_listener_is_judged_by_where_a_connection_gets_to() {
        const HERE: &str = "0100007F:1F90";
        const ALL: &str = "00000000:1F90";
        const ALL_V6: &str = "00000000000000000000000000000000:1F90";
        const MAPPED: &str = "0000000000000000FFFF00000100007F:1F90";
        let own = || Listener::Own(vec!["71000".to_owned()]);
        for (rows, judged_so) in [
            (vec![(HERE, "0A", 1000)], own()),
            (vec![(HERE, "0A", 0)], Listener::Own(vec!["70".to_owned()])),
            (vec![(HERE, "0A", 1000), (ALL, "0A", 1001)], own()),
            (vec![(HERE, "0A", 1001)], Listener::AnotherUser),
            (vec![(MAPPED, "0A", 1001)], Listener::AnotherUser),
            (vec![(HERE, "0A", 1000), (MAPPED, "0A", 1001)], Listener::AnotherUser),
            (vec![(ALL, "0A", 1001)], Listener::AnotherUser),
            (vec![(ALL_V6, "0A", 1001)], Listener::AnotherUser),
            (vec![(ALL, "0A", 1000)], Listener::Perhaps),
            (vec![(HERE, "01", 1001), ("0100007F:1F91", "0A", 1001)], Listener::Missing),
            (vec![], Listener::Missing),
        ] {
            let table: String = rows.iter().map(|(local, state, user)| row(local, state, *user)).collect();
            assert_eq!(judged(&table, "127.0.0.1:8080".parse().unwrap(), 1000), judged_so, "{rows:?}");
        }
        let v6 = |rows: String| judged(&rows, "[::1]:8080".parse().unwrap(), 1000);
        assert_eq!(v6(row("00000000000000000000000001000000:1F90", "0A", 1000)), own());
        assert_eq!(v6(row(ALL_V6, "0A", 1001)), Listener::AnotherUser);
        assert_eq!(v6(row(ALL, "0A", 1001)), Listener::Missing);
    }

    #[test]
    fn a_listener_of_this_program_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(matches!(at(address), Listener::Own(sockets) if sockets.len() == 1));
        drop(listener);
        assert_eq!(at(address), Listener::Missing, "where nothing listens, anyone can begin to");
    }

    #[test]
    fn localhost_stands_for_both_addresses() {
        let shown = |host| addresses(host, 1).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown("localhost"), ["127.0.0.1:1", "[::1]:1"]);
        assert_eq!([shown("127.0.0.2"), shown("[::1]")], [["127.0.0.2:1"], ["[::1]:1"]]);
    }
}
