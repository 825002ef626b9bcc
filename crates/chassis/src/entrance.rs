//! Through which listener of `ensemble up` a request came, and which requests belong there. A service on its own has one listener, which
//! takes all of them.

use std::net::{IpAddr, SocketAddr};

use actix_web::http::header::{HOST, HeaderMap};
use ensemble_types::problem::{Code, Problem};

/// What the edge says of the entrance of a request: `local` of a program on this computer, `proxy` of one that a proxy on this computer
/// carries, and nothing of others. No field of a client with this name reaches a service.
pub const ENTRANCE: &str = "x-internal-entrance";

/// The names of this computer in a `Host`, with any port.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Through which listener a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// Other computers may reach it.
    Network,
    /// For programs on this computer.
    Loopback,
    /// For a proxy on this computer, which carries the requests of others.
    Proxy,
}

/// What the listeners of a service are for.
#[derive(Clone, Debug, Default)]
pub struct Entrances {
    /// The public listener is for this computer: requests name a loopback host, or one of these.
    pub loopback: Option<Vec<String>>,
    /// The listener for a proxy on this computer, and the host that requests name there.
    pub proxy: Option<(SocketAddr, String)>,
}

impl Entrances {
    /// The entrance of a connection to this address.
    pub fn of(&self, at: SocketAddr) -> Entrance {
        match &self.proxy {
            Some((proxy, _)) if *proxy == at => Entrance::Proxy,
            _ if self.loopback.is_some() => Entrance::Loopback,
            _ => Entrance::Network,
        }
    }

    /// Refuses a request with another `Host`. A page whose name leads to this computer for a moment (DNS rebinding) sends such a one.
    /// Also refuses a request of a proxy that does not say whom it carries.
    ///
    /// # Errors
    /// The problem to answer with.
    pub fn check(&self, entrance: Entrance, headers: &HeaderMap) -> Result<(), Problem> {
        let host = host(headers);
        let is_known = match entrance {
            Entrance::Network => true,
            Entrance::Loopback => is_loopback(host) || self.loopback.iter().flatten().any(|name| is_same(name, host)),
            Entrance::Proxy if last_hop(headers).is_none() => {
                let detail = "The proxy must write the address of the caller as the last one of `X-Forwarded-For`.";
                return Err(Problem::new(Code::InvalidArgument, detail));
            }
            Entrance::Proxy => self.proxy.iter().any(|(_, name)| is_same(name, host)),
        };
        if is_known {
            return Ok(());
        }
        let detail = if entrance == Entrance::Proxy {
            "Requests of the proxy must name the host of the server's public address (`--public-url`): have the proxy pass on the caller's \
             `Host` (nginx: `proxy_set_header Host $host;`)."
        } else {
            "This server has no such `Host` here. It answers to localhost, 127.0.0.1 and its public addresses: \
             `ensemble up --public-url URL`, or PUBLIC_ORIGINS for several, which then has to name this computer's address as well."
        };
        Err(Problem::new(Code::MisdirectedRequest, detail))
    }
}

/// Which listeners of a service have all their callers on this computer, though every page of a browser here can call them, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnlyHere {
    pub public: bool,
    pub internal: bool,
}

/// Whether a request names this computer.
pub fn names_this_computer(headers: &HeaderMap) -> bool {
    is_loopback(host(headers))
}

/// One of something for the requests that a proxy on this computer carries, and one for all others, which they do not use up.
#[derive(Debug)]
pub struct Apart<T>([T; 2]);

impl<T> Apart<T> {
    pub fn new(others: T, of_proxy: T) -> Self {
        Self([others, of_proxy])
    }

    pub fn of(&self, entrance: Entrance) -> &T {
        let [others, of_proxy] = &self.0;
        if entrance == Entrance::Proxy { of_proxy } else { others }
    }

    pub fn both(&self) -> &[T; 2] {
        &self.0
    }
}

/// Whether the edge says that a proxy on this computer carries this request.
pub fn is_of_proxy(headers: &HeaderMap) -> bool {
    says(headers, b"proxy")
}

/// Whether the edge says that this request is one of a program on this computer.
pub fn is_local(headers: &HeaderMap) -> bool {
    says(headers, b"local")
}

fn says(headers: &HeaderMap, name: &[u8]) -> bool {
    headers.get(ENTRANCE).is_some_and(|entrance| entrance.as_bytes() == name)
}

/// Whether a request is one of a program on this computer, as far as its head shows: a proxy would name another host, or whom it carries.
pub fn is_direct(headers: &HeaderMap) -> bool {
    const OF_PROXIES: [&str; 6] =
        ["forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"];
    let is_of_proxy = |name: &str| OF_PROXIES.contains(&name) || name.starts_with("x-forwarded-");
    is_loopback(host(headers)) && !headers.keys().any(|name| is_of_proxy(name.as_str()))
}

/// The last address of `X-Forwarded-For`, which the proxy before this server has written.
pub fn last_hop(headers: &HeaderMap) -> Option<IpAddr> {
    let hops = headers.get_all("x-forwarded-for").last()?.to_str().ok()?;
    hops.rsplit(',').next()?.trim().parse().ok().map(|hop: IpAddr| hop.to_canonical())
}

/// The host of an authority: what stands before its port.
pub fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    }
}

fn host(headers: &HeaderMap) -> &str {
    host_of(headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default())
}

fn is_loopback(host: &str) -> bool {
    LOOPBACK.iter().any(|name| is_same(name, host))
}

fn is_same(name: &str, host: &str) -> bool {
    name.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn code(entrances: &Entrances, entrance: Entrance, host: &'static str) -> Option<Code> {
        entrances.check(entrance, &fields(&[("host", host)])).err().map(|problem| problem.code)
    }

    #[test]
    fn the_loopback_listener_answers_to_its_names_with_any_port() {
        let names = vec!["ensemble.example.com".to_owned(), "127.0.0.2".to_owned()];
        let entrances = Entrances { loopback: Some(names), proxy: None };
        for host in [
            "localhost",
            "LocalHost:1",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "127.0.0.2:8080",
            "ensemble.example.com",
            "Ensemble.Example.Com:443",
        ] {
            assert_eq!(code(&entrances, Entrance::Loopback, host), None, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "127.0.0.3",
            "0.0.0.0:8080",
            "[::]",
            "[::1",
            "::1",
            "example.com",
            "x.ensemble.example.com",
        ] {
            assert_eq!(code(&entrances, Entrance::Loopback, host), Some(Code::MisdirectedRequest), "{host}");
        }
    }

    #[test]
    fn a_listener_for_others_answers_to_every_name() {
        let entrances = Entrances::default();
        assert_eq!(entrances.of(at(1)), Entrance::Network);
        assert_eq!(code(&entrances, Entrance::Network, "evil.example"), None);
    }

    #[test]
    fn the_listener_of_a_proxy_answers_to_the_public_name_and_for_a_caller() {
        let proxy = Some((at(2), "ensemble.example.com".to_owned()));
        let entrances = Entrances { loopback: Some(Vec::new()), proxy };
        assert_eq!([at(1), at(2)].map(|at| entrances.of(at)), [Entrance::Loopback, Entrance::Proxy]);
        // Another interface may have a listener with the same port.
        assert_eq!(entrances.of(([192, 0, 2, 1], 2).into()), Entrance::Loopback);
        for (host, hops, refused) in [
            ("ensemble.example.com", &["192.0.2.1"][..], None),
            ("ENSEMBLE.example.com:443", &["6.6.6.6, 192.0.2.1"], None),
            ("ensemble.example.com", &[], Some(Code::InvalidArgument)),
            ("ensemble.example.com", &["192.0.2.1", "unknown"], Some(Code::InvalidArgument)),
            ("localhost", &["192.0.2.1"], Some(Code::MisdirectedRequest)),
            ("127.0.0.1:2", &["192.0.2.1"], Some(Code::MisdirectedRequest)),
            ("evil.example", &["192.0.2.1"], Some(Code::MisdirectedRequest)),
        ] {
            let mut all = vec![("host", host)];
            all.extend(hops.iter().map(|hop| ("x-forwarded-for", *hop)));
            let refusal = entrances.check(Entrance::Proxy, &fields(&all)).err();
            assert_eq!(refusal.map(|problem| problem.code), refused, "{host} {hops:?}");
        }
    }

    #[test]
    fn what_is_counted_for_a_proxy_is_counted_apart() {
        let counted = Apart::new("others", "proxy");
        let of = [Entrance::Network, Entrance::Loopback, Entrance::Proxy].map(|entrance| *counted.of(entrance));
        assert_eq!((of, counted.both()), (["others", "others", "proxy"], &["others", "proxy"]));
    }

    #[test]
    fn a_request_that_a_proxy_carries_is_not_direct() {
        assert!(is_direct(&fields(&[("host", "localhost:8080"), ("x-request-id", "1"), ("x-forwarded", "1")])));
        assert!(!is_direct(&fields(&[("host", "ensemble.example.com")])));
        for name in ["x-forwarded-for", "x-forwarded-host", "forwarded", "via", "x-real-ip", "cf-connecting-ip"] {
            assert!(!is_direct(&fields(&[("host", "localhost"), (name, "1")])), "{name}");
        }
    }

    #[test]
    fn the_last_hop_is_what_the_last_proxy_wrote() {
        let last = |lines: &[&'static str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            last_hop(&fields(&lines)).map(|hop| hop.to_string())
        };
        assert_eq!(last(&["6.6.6.6, 192.0.2.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(last(&["6.6.6.6", "192.0.2.1,::ffff:192.0.2.2"]).as_deref(), Some("192.0.2.2"));
        assert_eq!(last(&["2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        for lines in [&[][..], &[""], &["192.0.2.1,"], &["192.0.2.1, unknown"], &["192.0.2.1:80"], &["192.0.2.1", ""]] {
            assert_eq!(last(lines), None, "{lines:?}");
        }
    }
}
