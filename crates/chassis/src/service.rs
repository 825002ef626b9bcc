//! What a service defines. The chassis does everything else.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream;
use actix_web::{Route, web};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use secrecy::SecretString;

use crate::auth::{Gate, KeySource};
use crate::config::Vars;
use crate::metrics::Metrics;
use crate::process::{Drain, ServerSettings};
use crate::routes::no_such_route;
use crate::{Clock, Routes};

/// Why a service could not start.
pub type StartError = anyhow::Error;

/// A service: its name, its variables, its table of routes, its state.
pub trait Service: Send + Sync + Sized + 'static {
    /// As in `session-store`.
    const NAME: &'static str;
    /// The public port unless `PUBLIC_LISTEN` is set; the internal port is 1,000 above.
    const DEFAULT_PORT: u16;
    type Config: Send + 'static;

    /// Reads the variables. Mistakes are collected in `vars`; return some value all the same.
    fn configure(vars: &mut Vars) -> Self::Config;

    /// The table of the public listener.
    fn routes() -> Routes;

    /// Opens the database, makes clients, and names the loops that run as long as the service does. Runs on the main
    /// runtime. Must not fail because a peer is away.
    fn build(
        config: Self::Config,
        context: ServiceContext,
    ) -> impl Future<Output = Result<(Self, Vec<Worker>), StartError>> + Send;

    /// Brings the database up to date and nothing else: the `migrate` command.
    fn migrate(config: Self::Config) -> impl Future<Output = Result<(), StartError>> + Send {
        let _ = config;
        async { Ok(()) }
    }

    /// Where the keys of access tokens come from.
    fn keys(&self) -> Arc<dyn KeySource>;

    /// Who may call the [`crate::Access::VoiceKey`] routes.
    fn gate(&self) -> Option<Arc<dyn Gate>> {
        None
    }

    /// Limits of the public listener that differ from the usual ones.
    fn server_settings(&self) -> ServerSettings {
        ServerSettings::default()
    }

    /// Looks at a connection that was accepted; what it puts beside it, [`actix_web::HttpRequest::conn_data`] gives back.
    fn on_connect(&self, connection: &TcpStream, data: &mut Extensions) {
        let _ = (connection, data);
    }

    /// Surrounds every request of the public listener.
    fn middleware(
        request: ServiceRequest,
        next: Next<BoxBody>,
    ) -> impl Future<Output = Result<ServiceResponse, actix_web::Error>> {
        next.call(request)
    }

    /// Answers requests that no row of the table matches: a 404 problem.
    fn default_service() -> Route {
        web::to(no_such_route)
    }

    /// What peers may call, on the internal listener.
    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        Vec::new()
    }

    /// Whether requests may be sent here; `Err` says why not. A peer that is away is no reason.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// What the chassis hands to a service.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    pub clock: Clock,
    /// Ends loops and long answers.
    pub drain: Drain,
    pub metrics: Metrics,
    /// For calls to peers.
    pub http: reqwest::Client,
    /// Shows peers that we are one of them.
    pub internal_token: SecretString,
    /// Where this service was bound, with the real port.
    pub public_addr: SocketAddr,
    pub internal_addr: SocketAddr,
}

/// A loop with its name. It must end soon after the drain begins.
pub struct Worker {
    pub name: &'static str,
    pub task: BoxFuture<'static, ()>,
}

impl Worker {
    pub fn new(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { name, task: Box::pin(task) }
    }
}

/// One method on the internal listener: `POST /rpc/<path>` with a protobuf body.
#[derive(Clone)]
pub struct RpcMount {
    /// `ensemble.machines.v1.MachineDirectory/Get`
    pub path: String,
    pub call: RpcCall,
}

pub type RpcCall = Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, RpcStatus>> + Send + Sync>;

/// A failed internal call, in the words that Twirp uses.
#[derive(Clone, Debug)]
pub struct RpcStatus {
    /// `not_found`, `invalid_argument`, `unavailable`, `internal`.
    pub code: &'static str,
    pub message: String,
}
