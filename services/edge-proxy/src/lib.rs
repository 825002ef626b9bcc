//! edge-proxy: the public entrance.
//!
//! It refuses requests that two readers could understand differently ([`domain`]), counts them (`limits`), sends them to
//! the service that their path belongs to, and answers itself what concerns no service: CORS, health, the documentation,
//! the page behind a public link (`pages`). It keeps no state that a restart could lose. The services behind it trust
//! nothing that it says.

mod config;
mod connections;
pub mod domain;
mod forward;
mod keys;
mod limits;
mod metrics;
mod middleware;
mod pages;
mod request_context;
mod upstream;

use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream;
use actix_web::{Route, web};
use ensemble_chassis::auth::{AuthContext, FixedKeys};
use ensemble_chassis::entrance::{Apart, Entrances};
use ensemble_chassis::process::{ServerSettings, TlsFront, prepare_connection, raise_file_limit};
use ensemble_chassis::{Drain, KeySet, KeySource, Routes, Service, ServiceContext, StartError, Vars, Worker};
use tokio::time::timeout;

use crate::config::Config;
use crate::connections::Connection;
use crate::domain::route_table::{PerUpstream, Upstream};
use crate::limits::Limiter;
use crate::metrics::EdgeMetrics;
use crate::upstream::addresses::Replicas;
use crate::upstream::send::Client;
use ensemble_chassis::shares::Shares;

/// How often counters that are full again are forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// The edge: what all its threads share.
pub struct EdgeProxy {
    config: Config,
    drain: Drain,
    keys: Arc<FixedKeys>,
    auth: AuthContext,
    connections: Apart<Arc<Shares<IpAddr>>>,
    tls: Option<TlsFront>,
    entrances: Entrances,
    metrics: EdgeMetrics,
    client: Client,
    replicas: PerUpstream<Arc<Replicas>>,
}

impl Service for EdgeProxy {
    const NAME: &'static str = "edge-proxy";
    const DEFAULT_PORT: u16 = 8080;
    type Config = Config;

    fn configure(vars: &mut Vars) -> Config {
        Config::read(vars)
    }

    fn routes() -> Routes {
        pages::routes()
    }

    async fn build(config: Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        raise_file_limit();
        let keys = Arc::new(FixedKeys::new(KeySet::default()));
        let metrics = EdgeMetrics::new(context.metrics.registry())?;
        let replicas = PerUpstream::new(|upstream| Arc::new(Replicas::new(config.upstreams.of(upstream).clone())));
        for upstream in Upstream::ALL {
            // A service that is not there yet is found later.
            let _ = replicas.of(upstream).look_up().await;
        }
        let edge = Self {
            auth: AuthContext::new(Arc::clone(&keys) as Arc<dyn KeySource>, None, context.clock.clone()),
            connections: Apart::new(
                Shares::new(config.connections_per_address, usize::MAX),
                // All are of the proxy's address.
                Shares::new(config.server.max_connections / 2, usize::MAX),
            ),
            tls: config.tls.clone().map(|tls| TlsFront::bind(tls, connections::of_https(&config))).transpose()?,
            client: upstream::send::client(config.upstream),
            entrances: context.entrances,
            drain: context.drain,
            config,
            keys,
            metrics,
            replicas,
        };
        let mut workers = edge.workers(context.http);
        if let Some(tls) = edge.tls.clone() {
            workers.push(Worker::new("https", tls.run(context.public_addr, edge.drain.clone())));
        }
        Ok((Arc::new(edge), workers))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn server_settings(&self) -> ServerSettings {
        self.config.server
    }

    fn on_connect(&self, connection: &TcpStream, data: &mut Extensions) {
        prepare_connection(connection, self.config.send_stall);
        if let (Ok(peer), Ok(at)) = (connection.peer_addr(), connection.local_addr()) {
            let client = self.tls.as_ref().map_or(peer, |tls| tls.client(peer));
            data.insert(Rc::new(Connection::open(self, client, peer, at)));
        }
    }

    fn middleware(
        request: ServiceRequest,
        next: Next<BoxBody>,
    ) -> impl Future<Output = Result<ServiceResponse, actix_web::Error>> {
        middleware::around(request, next)
    }

    fn default_service() -> Route {
        web::to(forward::forward)
    }
}

impl EdgeProxy {
    fn workers(&self, http: reqwest::Client) -> Vec<Worker> {
        let drain = &self.drain;
        let mut workers: Vec<Worker> = Upstream::ALL
            .map(|upstream| {
                let replicas = Arc::clone(self.replicas.of(upstream));
                Worker::new("addresses", replicas.follow(self.config.resolve_every, drain.clone()))
            })
            .into();
        let jwks = format!("{}/.well-known/jwks.json", self.config.upstreams.of(Upstream::Identity));
        let keys = Arc::clone(&self.keys);
        workers.push(Worker::new("keys", keys::follow(keys, http, jwks, self.config.keys_every, drain.clone())));
        workers.push(Worker::new("counters", forget(Arc::clone(&self.config.limiters), drain.clone())));
        workers
    }
}

/// Forgets counters that are full again.
async fn forget(limiters: Arc<Apart<Limiter>>, drain: Drain) {
    while timeout(FORGET, drain.closing()).await.is_err() {
        limiters.both().iter().for_each(Limiter::sweep);
    }
}
