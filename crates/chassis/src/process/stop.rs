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

/// How long to wait after the last answer, for requests that clients have sent already.
const LINGER: Duration = Duration::from_millis(200);
/// How long a worker may take to end after the drain.
const WORKER_TIMEOUT: Duration = Duration::from_secs(5);

/// A running service. Dropping this does not stop it; [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    pub public_addr: SocketAddr,
    pub internal_addr: SocketAddr,
    pub(super) stage: watch::Sender<Stage>,
    /// The public listener's socket a second time, to close it before the server stops.
    pub(super) listener: TcpListener,
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
        self.close_listener();
        let answered = timeout(self.grace, quiet(&self.in_flight)).await.is_ok();
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

    /// Refuses new connections while those that are open go on. actix's `stop` does both at once and drops connections
    /// that it has accepted and not begun to serve.
    fn close_listener(&self) {
        if let Err(error) = SockRef::from(&self.listener).shutdown(Shutdown::Read) {
            tracing::debug!(%error, "The listener stays open until the server stops");
        }
    }
}

/// Completes when nothing has been in flight for [`LINGER`].
async fn quiet(in_flight: &InFlight) {
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if in_flight.count() > 0 {
            since = Instant::now();
        }
    }
}
