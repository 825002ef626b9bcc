//! Whose program listens at a port of this computer. Another user could do so while the person's own server does not run, and serve a
//! page that takes what the browser is given.

use std::fs;

use nix::unistd::geteuid;

/// Whether another user than this one and root listens at this port of any address, as far as this system says (proc_net_tcp(5)).
pub(super) fn is_of_another_user(port: u16) -> bool {
    let own = geteuid().as_raw();
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    sockets.iter().flat_map(|sockets| listeners(sockets, port)).any(|user| ![own, 0].contains(&user))
}

fn listeners(sockets: &str, port: u16) -> impl Iterator<Item = u32> {
    const LISTENS: &str = "0A";
    let end = format!(":{port:04X}");
    sockets.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, user) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
        (local.ends_with(&end) && *state == LISTENS).then(|| user.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_user_of_each_listener_at_the_port_is_found() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                       \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1\n\
                       \x20  1: 0100007F:1F90 0100007F:D1F2 01 00000000:00000000 00:00000000 00000000  1002        0 2 1\n\
                       \x20  2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 3 1\n\
                       \x20  3: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1\n";
        assert_eq!(listeners(sockets, 8080).collect::<Vec<_>>(), [1001, 0]);
        assert_eq!(listeners("", 8080).count(), 0);
    }

    #[test]
    fn a_listener_of_this_user_is_not_another_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_of_another_user(port));
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        assert_eq!(listeners(&sockets, port).count(), 1);
    }
}
