//! Where each service is: its name, looked up again and again.
//!
//! Replicas come and go; a name that is looked up once at start sends requests to where a service no longer is.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::net::lookup_host;

/// `http://host:port`, as configured.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Host and port, as they are looked up.
    pub authority: Arc<str>,
}

/// The text is not the address of a service.
#[derive(Debug, thiserror::Error)]
#[error("say http://host:port; the edge speaks plain HTTP to the services, inside one network")]
pub struct NotAnOrigin;

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl std::str::FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let rest = text.strip_prefix("http://").ok_or(NotAnOrigin)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        if !is_host || port.parse::<u16>().is_err() {
            return Err(NotAnOrigin);
        }
        Ok(Self { authority: format!("{host}:{port}").into() })
    }
}

/// Where the replicas of one service are.
#[derive(Debug)]
pub(crate) struct Replicas {
    origin: Origin,
    known: Mutex<Arc<[SocketAddr]>>,
    next: AtomicUsize,
}

impl Replicas {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin, known: Mutex::default(), next: AtomicUsize::new(0) }
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// All addresses, beginning with another one each time.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let known = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let (first, count) = (self.next.fetch_add(1, Ordering::Relaxed), known.len());
        (0..count).filter_map(move |at| known.get(first.wrapping_add(at) % count).copied())
    }

    /// Looks the name up. An answer that is an error or empty changes nothing: a name server that is away is no reason to
    /// forget where a service is.
    ///
    /// # Errors
    /// The name has no address now.
    pub(crate) async fn look_up(&self) -> io::Result<()> {
        let mut addresses: Vec<SocketAddr> = lookup_host(&*self.origin.authority).await?.collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(io::Error::other("the name has no address"));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if **known != *addresses {
            tracing::info!(service = %self.origin.authority, ?addresses, "Found a service");
            *known = addresses.into();
        }
        Ok(())
    }

    /// Looks the name up every `interval`, until the drain.
    pub(crate) async fn follow(self: Arc<Self>, interval: Duration, drain: Drain) {
        let mut has_failed = false;
        loop {
            let found = self.look_up().await;
            if let (Err(error), false) = (&found, has_failed) {
                tracing::warn!(service = %self.origin.authority, %error, "A service's name cannot be looked up");
            }
            has_failed = found.is_err();
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = drain.closing() => return,
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
            assert_eq!(&*text.parse::<Origin>().expect("an origin").authority, authority);
        }
        for text in ["https://a", "a:80", "http://", "http://a/b", "http://u@a", "http://a:x"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn addresses_are_used_in_turn() {
        let replicas = Replicas::new("http://127.0.0.1:1".parse().expect("an origin"));
        assert_eq!(replicas.in_turn().count(), 0, "not looked up yet");
        replicas.look_up().await.expect("an address needs no name server");
        assert_eq!(replicas.in_turn().count(), 1);
        let two: Vec<SocketAddr> = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().expect("an address")).into();
        *replicas.known.lock().expect("not poisoned") = two.clone().into();
        let (first, second): (Vec<_>, Vec<_>) = (replicas.in_turn().collect(), replicas.in_turn().collect());
        assert_eq!(first.len(), 2);
        assert_eq!(first[0], second[1]);
        assert_eq!(first[1], second[0]);
    }
}
