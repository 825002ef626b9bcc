//! Where each service is: its name, looked up again and again.
//!
//! Replicas come and go; a name that is looked up once at start sends requests to where a service no longer is.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_chassis::Drain;
use reqwest::Url;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long an address that said `Connection: close` is avoided: longer than a service keeps serving after it said so
/// (2 s) and the next look-up (2 s), so that no request meets the end of its listener.
pub(crate) const DRAINING: Duration = Duration::from_secs(5);
/// How long an address that took no connection is avoided, so that not every request tries it first.
pub(crate) const REFUSED: Duration = Duration::from_secs(1);

/// `http://host:port`, as configured, or several of them with commas between.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Host and port, as they are looked up. The first one is the `Host` of all requests.
    authorities: Vec<String>,
}

/// The text is not the address of a service.
#[derive(Debug, thiserror::Error)]
#[error("say http://host:port; the edge speaks plain HTTP to the services, inside one network")]
pub struct NotAnOrigin;

impl Origin {
    pub(crate) fn local(port: u16) -> Self {
        Self { authorities: vec![format!("127.0.0.1:{port}")] }
    }

    pub(crate) fn host(&self) -> &str {
        self.authorities.first().map_or("", String::as_str)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.host())
    }
}

impl std::str::FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        text.split(',').map(authority).collect::<Option<_>>().map(|authorities| Self { authorities }).ok_or(NotAnOrigin)
    }
}

fn authority(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    let authority = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    // Only a user, a path, a query or a fragment makes the URL longer than its scheme and authority.
    let is_plain = [format!("http://{authority}/"), format!("http://{}/", url.host_str()?)].contains(&url.to_string());
    is_plain.then_some(authority)
}

/// Where the replicas of one service are.
#[derive(Debug)]
pub(crate) struct Replicas {
    origin: Origin,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: Vec<SocketAddr>,
    set_aside: HashMap<SocketAddr, Instant>,
    turn: usize,
}

impl Replicas {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin, state: Mutex::default() }
    }

    /// All addresses, beginning with another one each time. Those that were set aside come last.
    pub(crate) fn in_turn(&self) -> Vec<SocketAddr> {
        let mut state = self.state();
        let now = Instant::now();
        state.set_aside.retain(|_, until| *until > now);
        state.turn = state.turn.wrapping_add(1);
        let (mut last, mut first): (Vec<_>, Vec<_>) =
            state.addresses.iter().copied().partition(|address| state.set_aside.contains_key(address));
        for some in [&mut first, &mut last] {
            let by = state.turn.checked_rem(some.len()).unwrap_or(0);
            some.rotate_left(by);
        }
        first.append(&mut last);
        first
    }

    /// Avoids an address for a while.
    pub(crate) fn set_aside(&self, address: SocketAddr, time: Duration) {
        let until = Instant::now() + time;
        self.state().set_aside.entry(address).and_modify(|known| *known = until.max(*known)).or_insert(until);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks the names up. A result that is an error or empty changes nothing: a name server that is down is no reason to
    /// forget where a service is.
    pub(crate) async fn look_up(&self) -> io::Result<()> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for authority in &self.origin.authorities {
            addresses.extend(lookup_host(authority).await?);
        }
        addresses.sort_unstable();
        addresses.dedup();
        let mut state = self.state();
        if !addresses.is_empty() && state.addresses != addresses {
            tracing::info!(service = %self.origin, ?addresses, "Found a service");
            state.addresses = addresses;
        }
        Ok(())
    }

    /// Looks the name up every `interval`, until the drain.
    pub(crate) async fn follow(self: Arc<Self>, interval: Duration, drain: Drain) {
        let mut has_failed = false;
        loop {
            let found = self.look_up().await;
            if let (Err(error), false) = (&found, has_failed) {
                tracing::warn!(service = %self.origin, %error, "A service's name cannot be looked up");
            }
            has_failed = found.is_err();
            if timeout(interval, drain.closing()).await.is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_plain_http_with_a_host() {
        for (text, authority) in [
            ("http://session-store:8083", "session-store:8083"),
            ("http://127.0.0.1:1/", "127.0.0.1:1"),
            ("http://a", "a:80"),
            ("http://[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(text.parse::<Origin>().expect("an origin").host(), authority);
        }
        for text in ["https://a", "a:80", "http://", "http://a/b", "http://u@a", "http://a:x"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn addresses_are_used_in_turn() {
        let replicas = Replicas::new("http://127.0.0.1:1,http://127.0.0.1:2".parse().expect("an origin"));
        assert!(replicas.in_turn().is_empty(), "not looked up yet");
        replicas.look_up().await.expect("an address needs no name server");
        let (first, second) = (replicas.in_turn(), replicas.in_turn());
        assert_eq!(first.len(), 2);
        assert_eq!((first[0], first[1]), (second[1], second[0]));
    }

    #[tokio::test]
    async fn addresses_that_were_set_aside_come_last_for_a_while() {
        let replicas =
            Replicas::new("http://127.0.0.1:1,http://127.0.0.1:2,http://127.0.0.1:3".parse().expect("an origin"));
        replicas.look_up().await.expect("an address needs no name server");
        let avoided = replicas.in_turn()[0];
        replicas.set_aside(avoided, DRAINING);
        replicas.set_aside(avoided, Duration::ZERO);
        let firsts: Vec<_> = (0..4).map(|_| replicas.in_turn()[0]).collect();
        assert!(!firsts.contains(&avoided));
        assert!(firsts[0] != firsts[1] && firsts[0] == firsts[2], "the others are used in turn");
        assert_eq!(replicas.in_turn()[2], avoided);
        let other = firsts[0];
        replicas.set_aside(other, Duration::ZERO);
        assert!((0..4).any(|_| replicas.in_turn()[0] == other), "its time is over");
    }
}
