//! The trait that a service implements. The chassis does everything else.

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
use crate::entrance::Entrances;
use crate::metrics::Metrics;
use crate::process::{Drain, ServerSettings};
use crate::routes::no_such_route;
use crate::{Clock, Routes};

/// The reason why a service could not start.
pub type StartError = anyhow::Error;

/// A service: its name, its variables, its table of routes, its state.
pub trait Service: Send + Sync + Sized + 'static {
    /// As in `session-store`.
    const NAME: &'static str;
    /// The public port unless `PUBLIC_LISTEN` is set; the internal port is 1,000 above.
    const DEFAULT_PORT: u16;
    type Config: Send + 'static;

    /// Reads the variables. `vars` collects mistakes, so this returns a value in any case.
    fn configure(vars: &mut Vars) -> Self::Config;

    /// The table of the public listener.
    fn routes() -> Routes;

    /// Opens the database, makes clients, and returns the workers that run as long as the service does. It runs on the
    /// main runtime. It must not fail because a peer is unavailable.
    fn build(
        config: Self::Config,
        context: ServiceContext,
    ) -> impl Future<Output = Result<(Arc<Self>, Vec<Worker>), StartError>> + Send;

    /// Migrates the database, for the `migrate` command.
    fn migrate(config: Self::Config) -> impl Future<Output = Result<(), StartError>> + Send {
        let _ = config;
        async { Ok(()) }
    }

    /// The source of the keys of access tokens.
    fn keys(&self) -> Arc<dyn KeySource>;

    /// The check of the [`crate::Access::VoiceKey`] routes.
    fn gate(&self) -> Option<Arc<dyn Gate>> {
        None
    }

    /// The limits of the public listener.
    fn server_settings(&self) -> ServerSettings {
        ServerSettings::default()
    }

    /// Inspects an accepted connection. [`actix_web::HttpRequest::conn_data`] returns what this stores in `data`.
    fn on_connect(&self, connection: &TcpStream, data: &mut Extensions) {
        let _ = (connection, data);
    }

    /// Wraps every request of the public listener.
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

    /// The methods that peers may call on the internal listener.
    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        Vec::new()
    }

    /// Whether the service is ready; `Err` has the reason. A peer that is unavailable is no reason.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// What the chassis passes to a service.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    pub clock: Clock,
    /// Signals when workers and long answers must end.
    pub drain: Drain,
    pub metrics: Metrics,
    /// For calls to peers.
    pub http: reqwest::Client,
    /// Authenticates calls to peers.
    pub internal_token: SecretString,
    /// The address of the public listener, with the real port.
    pub public_addr: SocketAddr,
    pub internal_addr: SocketAddr,
    pub entrances: Entrances,
}

/// A background task and its name. It must end soon after the drain begins.
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

/// A failed internal call, with an error code of Twirp.
#[derive(Clone, Debug)]
pub struct RpcStatus {
    /// `not_found`, `invalid_argument`, `unavailable`, `internal`.
    pub code: &'static str,
    pub message: String,
}
