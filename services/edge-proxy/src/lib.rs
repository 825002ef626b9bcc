//! edge-proxy: the one door to everything.
//!
//! It lets a request in only when no two readers can understand it differently ([`guard`], [`domain`]), counts it
//! ([`limits`]), sends it to the service that its path belongs to ([`forward`], [`upstream`]), and answers for itself what
//! concerns no service: CORS, health, the documentation, the page behind a public link ([`handlers`]). It reads no body and
//! keeps no state that a restart could lose. The services behind it trust nothing that it says.

pub mod config;
pub mod domain;
pub mod forward;
pub mod guard;
pub mod handlers;
pub mod keys;
pub mod limits;
pub mod metrics;
pub mod routes;
pub mod server;
mod sockets;
pub mod upstream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::auth::AuthContext;
use ensemble_chassis::process::{OpenDoor, PublicDoor};
use ensemble_chassis::{Drain, KeySource, Routes, Service, ServiceContext, StartError, Vars, Worker};
use tokio::sync::watch;

use crate::config::{Config, Patience};
use crate::domain::client_address::Network;
use crate::domain::cors::Origins;
use crate::domain::route_table::{PerUpstream, Upstream};
use crate::forward::streams::Streams;
use crate::guard::admission::Admission;
use crate::handlers::share::SharePage;
use crate::keys::PublishedKeys;
use crate::limits::Limiter;
use crate::metrics::EdgeMetrics;
use crate::upstream::addresses::{self, Addresses};
use crate::upstream::pool::PoolLimits;

/// How often counters that are full again are forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// The edge: what all its threads share.
pub struct EdgeProxy {
    config: Config,
    context: ServiceContext,
    keys: Arc<PublishedKeys>,
    auth: AuthContext,
    limiter: Limiter,
    streams: Arc<Streams>,
    admission: Arc<Admission>,
    metrics: EdgeMetrics,
    known: PerUpstream<watch::Sender<Arc<[SocketAddr]>>>,
    share_page: SharePage,
}

impl Service for EdgeProxy {
    const NAME: &'static str = "edge-proxy";
    const DEFAULT_PORT: u16 = 8080;
    type Config = Config;

    fn configure(vars: &mut Vars) -> Config {
        Config::read(vars)
    }

    fn routes() -> Routes {
        routes::routes()
    }

    async fn build(config: Config, context: ServiceContext) -> Result<Self, StartError> {
        let keys = PublishedKeys::none();
        let auth = AuthContext::new(Arc::clone(&keys) as Arc<dyn KeySource>, None, context.clock.clone());
        let metrics = EdgeMetrics::new(context.metrics.registry())?;
        let known = PerUpstream::new(|_| watch::Sender::new(Arc::from([])));
        for upstream in Upstream::ALL {
            // A service that is not there yet is found later.
            if let Ok(addresses) = addresses::look_up(&config.upstreams.of(upstream).authority).await {
                known.of(upstream).send_replace(addresses.into());
            }
        }
        Ok(Self {
            limiter: Limiter::new(config.quotas),
            streams: Streams::new(config.streams_per_caller),
            admission: Admission::new(config.admission.clone()),
            share_page: SharePage::new(&config.public_base_url),
            config,
            context,
            keys,
            auth,
            metrics,
            known,
        })
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn open(self: &Arc<Self>, door: PublicDoor) -> io::Result<OpenDoor> {
        server::open(self, door)
    }

    fn workers(self: &Arc<Self>) -> Vec<Worker> {
        let drain = &self.context.drain;
        let mut workers: Vec<Worker> = Upstream::ALL
            .map(|upstream| {
                let origin = self.config.upstreams.of(upstream).clone();
                let known = self.known.of(upstream).clone();
                Worker::new("addresses", addresses::follow(origin, self.config.resolve_every, known, drain.clone()))
            })
            .into();
        let jwks = format!("{}/.well-known/jwks.json", self.config.upstreams.of(Upstream::Identity));
        let keys = Arc::clone(&self.keys);
        let http = self.context.http.clone();
        workers.push(Worker::new("keys", keys.follow(http, jwks, self.config.keys_every, drain.clone())));
        workers.push(Worker::new("counters", forget(Arc::clone(self))));
        workers
    }
}

/// Forgets counters that say nothing any more.
async fn forget(edge: Arc<EdgeProxy>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FORGET) => edge.limiter.sweep(),
            () = edge.context.drain.closing() => return,
        }
    }
}

impl EdgeProxy {
    pub(crate) fn addresses(&self, upstream: Upstream) -> Addresses {
        self.known.of(upstream).subscribe()
    }

    pub(crate) fn authority(&self, upstream: Upstream) -> &str {
        &self.config.upstreams.of(upstream).authority
    }

    pub(crate) fn pool_limits(&self) -> PoolLimits {
        self.config.pool
    }

    pub(crate) fn guard_limits(&self) -> guard::limits::Limits {
        self.config.guard
    }

    pub(crate) fn timeout(&self) -> Patience {
        self.config.timeout
    }

    pub(crate) fn trusted_proxies(&self) -> &[Network] {
        &self.config.admission.trusted
    }

    /// Whether answers depend on who asks from a browser.
    pub(crate) fn has_cors(&self) -> bool {
        !self.config.cors.is_empty()
    }

    pub(crate) fn cors(&self) -> &Origins {
        &self.config.cors
    }

    pub(crate) fn is_https(&self) -> bool {
        self.config.public_base_url.starts_with("https://")
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(crate) fn auth(&self) -> &AuthContext {
        &self.auth
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.context.drain
    }

    pub(crate) fn metrics(&self) -> &EdgeMetrics {
        &self.metrics
    }

    pub(crate) fn share_page(&self) -> &SharePage {
        &self.share_page
    }
}
