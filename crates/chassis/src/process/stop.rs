//! A running service, and how it stops without losing a request.

use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use socket2::SockRef;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::drain::Stage;
use crate::http::InFlight;

/// How long to wait for what is on its way: the end of a handshake, a request after the last answer.
const LINGER: Duration = Duration::from_millis(200);
const LONGEST_LINGER: Duration = Duration::from_secs(1);
/// How long actix may take to pause: it answers before its thread has done so.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a worker may take to end after the drain.
const WORKER_TIMEOUT: Duration = Duration::from_secs(5);

/// A running service. Dropping this does not stop it; [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    pub public_addr: SocketAddr,
    pub internal_addr: SocketAddr,
    pub(super) stage: watch::Sender<Stage>,
    /// The sockets of the public listeners a second time, to close them before the server stops.
    pub(super) listeners: Vec<TcpListener>,
    /// The public one and the internal one.
    pub(super) servers: [ServerHandle; 2],
    pub(super) tasks: Vec<JoinHandle<()>>,
    pub(super) in_flight: InFlight,
    pub(super) delay: Duration,
    pub(super) grace: Duration,
}

impl Running {
    /// `http://127.0.0.1:8080`
    pub fn public_url(&self) -> String {
        format!("http://{}", self.public_addr)
    }

    pub fn internal_url(&self) -> String {
        format!("http://{}", self.internal_addr)
    }

    /// How many requests have not been answered to the last byte.
    pub fn in_flight(&self) -> usize {
        self.in_flight.count()
    }

    /// Drains and stops: readiness fails and answers say `Connection: close`; after the delay long-polls are answered,
    /// streams end and the listener closes; requests that are in flight end. What has not ended after the grace is cut.
    /// True when nothing had to be cut.
    pub async fn stop(self) -> bool {
        let [public, internal] = &self.servers;
        self.stage.send_replace(Stage::Draining);
        tokio::time::sleep(self.delay).await;
        self.stage.send_replace(Stage::Closing);
        self.close_listeners().await;
        let answered = timeout(self.grace, quiet(&self.in_flight, self.linger())).await.is_ok();
        // This closes idle connections. actix checks once a second whether they have ended, and stops at its own timeout.
        let in_flight = self.in_flight.count();
        if !answered {
            tracing::warn!(in_flight, "Cut off requests that did not end in time");
        }
        public.stop(answered).await;
        internal.stop(false).await;
        for mut task in self.tasks {
            if timeout(WORKER_TIMEOUT, &mut task).await.is_err() {
                task.abort();
            }
        }
        answered
    }

    /// As long as the delay, within bounds: where load balancers are waited for, the machine may also be busy.
    fn linger(&self) -> Duration {
        self.delay.clamp(LINGER, LONGEST_LINGER)
    }

    /// Refuses new connections while those that are open go on. actix's `stop` does both at once and drops connections
    /// that it has accepted and not begun to serve. The kernel resets connections that it has made and actix has not yet
    /// accepted, so none may be left when the socket closes: first no new ones are made, then actix accepts the rest.
    ///
    /// Some kernels let only the administrator set a filter. There actix accepts until the socket closes: what it has not
    /// accepted at that moment is reset, and that is less than what comes while it pauses.
    async fn close_listeners(&self) {
        let ignored = self.listeners.iter().try_for_each(|listener| ignore_new_connections(&SockRef::from(listener)));
        if let Err(error) = &ignored {
            tracing::debug!(%error, "Connections made at this moment may be reset");
        } else {
            tokio::time::sleep(self.linger()).await;
            // Without the pause actix would try to accept, and log that it cannot.
            self.servers[0].pause().await;
            tokio::time::sleep(PAUSE).await;
        }
        for listener in &self.listeners {
            if let Err(error) = SockRef::from(listener).shutdown(Shutdown::Read) {
                tracing::debug!(%error, "A listener stays open until the server stops");
            }
        }
        if ignored.is_err() {
            self.servers[0].pause().await;
        }
    }
}

/// The kernel drops the first packet of every new connection. The client's kernel sends it again after one second
/// (RFC 6298, section 2.1) and is refused then.
#[cfg(target_os = "linux")]
fn ignore_new_connections(listener: &SockRef<'_>) -> std::io::Result<()> {
    use socket2::SockFilter;
    // Classic BPF over the TCP header, linux/filter.h. The flags are in byte 13: SYN is 0x02, ACK is 0x10.
    listener.attach_filter(&[
        SockFilter::new(0x30, 0, 0, 13),     // load byte 13
        SockFilter::new(0x54, 0, 0, 0x12),   // and SYN | ACK
        SockFilter::new(0x15, 0, 1, 0x02),   // only SYN: the next line, otherwise the one after it
        SockFilter::new(0x06, 0, 0, 0),      // drop
        SockFilter::new(0x06, 0, 0, 0xFFFF), // keep
    ])
}

#[cfg(not(target_os = "linux"))]
fn ignore_new_connections(_listener: &SockRef<'_>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Completes when nothing has been in flight for `linger`.
async fn quiet(in_flight: &InFlight, linger: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < linger {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if in_flight.count() > 0 {
            since = Instant::now();
        }
    }
}
