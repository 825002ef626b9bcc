//! Where each service is: its name, looked up again and again.
//!
//! Replicas come and go; a name that is looked up once at start sends requests to where a service no longer is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::net::lookup_host;
use tokio::sync::watch;

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

/// The addresses of one service as they are known now, in a fixed order.
pub type Addresses = watch::Receiver<Arc<[SocketAddr]>>;

/// Looks `origin` up now and then every `interval`, until the drain. An answer that is an error or empty changes nothing:
/// a name server that is away is no reason to forget where a service is.
pub async fn follow(origin: Origin, interval: Duration, known: watch::Sender<Arc<[SocketAddr]>>, drain: Drain) {
    let mut has_failed = false;
    loop {
        match look_up(&origin.authority).await {
            Ok(addresses) => {
                has_failed = false;
                known.send_if_modified(|current| {
                    let is_new = **current != *addresses;
                    if is_new {
                        tracing::info!(service = %origin.authority, ?addresses, "Found a service");
                        *current = addresses.into();
                    }
                    is_new
                });
            }
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!(service = %origin.authority, %error, "A service's name cannot be looked up");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = drain.closing() => return,
        }
    }
}

/// One look-up, for a first answer before anybody asks.
pub async fn look_up(authority: &str) -> std::io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = lookup_host(authority).await?.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(std::io::Error::other("the name has no address"));
    }
    Ok(addresses)
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
}
