//! Starts a service on its public and its internal listener.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Poll;
use std::{io, iter};

use actix_web::dev::Server;
use actix_web::middleware::{Condition, from_fn};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpServer, web};
use socket2::SockRef;
use tokio::task::JoinHandle;

use super::drain::Drain;
use super::internal::{self, InternalListener};
use super::settings::ProcessConfig;
use super::stop::Running;
use crate::auth::AuthContext;
use crate::config::Vars;
use crate::entrance::{Entrances, OnlyHere};
use crate::http::{InFlight, LargeAnswers, LargeWork, observe, only_here, unread};
use crate::http_client::http_client;
use crate::metrics::Metrics;
use crate::service::{Service, ServiceContext, StartError, Worker};
use crate::{Clock, Routes};

/// Connections that may wait to be accepted; the kernel lowers it to what it allows (listen(2)). The standard library's
/// 128 are fewer than a burst of streams that come back after a restart, and a client whose connection is dropped waits a
/// second before it tries again.
const BACKLOG: i32 = 4_096;

/// Bytes of an answer that a connection holds before it waits for its client. The piece that passes this bound is still
/// taken: 16 KiB of a stream, 32 KiB of a large answer. So this is what a client that reads nothing costs.
const WRITE_BUFFER: usize = 16 << 10;

/// How long the last bytes of an answer may take after the drain has ended.
const LAST_BYTES_SECONDS: u64 = 2;

/// The sockets of a service, bound before anything else so that addresses are known and a taken port is reported
/// early.
#[derive(Debug)]
pub struct Listeners {
    pub public: TcpListener,
    pub internal: TcpListener,
    /// Another public one, for a proxy on this computer.
    pub proxied: Option<TcpListener>,
    pub entrances: Entrances,
    pub only_here: OnlyHere,
}

impl Listeners {
    pub fn bind(public: SocketAddr, internal: SocketAddr) -> io::Result<Self> {
        let (public, internal) = (TcpListener::bind(public)?, TcpListener::bind(internal)?);
        Ok(Self { public, internal, proxied: None, entrances: Entrances::default(), only_here: OnlyHere::default() })
    }

    /// Two free ports of this machine, for tests and for several services in one process.
    pub fn loopback() -> io::Result<Self> {
        Self::bind(([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into())
    }
}

/// Starts a service on bound listeners. Returns when it accepts requests.
pub async fn start<S: Service>(mut vars: Vars, listeners: Listeners, clock: Clock) -> Result<Running, StartError> {
    super::install_providers();
    let process = ProcessConfig::read(&mut vars);
    let config = S::configure(&mut vars);
    vars.finish()?;
    let (public_addr, internal_addr) = (listeners.public.local_addr()?, listeners.internal.local_addr()?);
    let (stage, drain) = Drain::new();
    let metrics = Metrics::new(S::NAME)?;
    let in_flight = InFlight::default();
    metrics.watch(in_flight.clone())?;
    let budget = process.body_budget.clone();
    let held = move || f64::from(u32::try_from(budget.held()).unwrap_or(u32::MAX));
    metrics.reading("request_body_bytes", "Bytes of long request bodies that are held.", &[], held)?;
    let context = ServiceContext {
        clock,
        drain,
        metrics,
        http: http_client()?,
        internal_token: process.tokens.first().cloned().unwrap_or_default(),
        public_addr,
        internal_addr,
        entrances: listeners.entrances,
    };
    let (service, workers) = S::build(config, context.clone()).await?;
    let public: Vec<TcpListener> = iter::once(listeners.public).chain(listeners.proxied).collect();
    let open = public.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
    let only_here = listeners.only_here;
    let public = serve_public(&service, &context, &process, in_flight.clone(), (public, only_here.public))?;
    let internal =
        serve_internal(&service, context, &process, in_flight.clone(), (listeners.internal, only_here.internal))?;
    let servers = [public.handle(), internal.handle()];
    let mut tasks = vec![spawn_server(public).await?, spawn_server(internal).await?];
    tasks.extend(workers.into_iter().map(spawn_worker));
    tracing::info!(service = S::NAME, public = %public_addr, internal = %internal_addr, "Serving");
    Ok(Running {
        public_addr,
        internal_addr,
        stage,
        servers,
        listeners: open,
        tasks,
        in_flight,
        delay: process.drain_delay,
        grace: process.drain_grace,
    })
}

fn serve_public<S: Service>(
    service: &Arc<S>,
    context: &ServiceContext,
    process: &ProcessConfig,
    in_flight: InFlight,
    (listeners, is_only_here): (Vec<TcpListener>, bool),
) -> io::Result<Server> {
    let auth = web::Data::new(AuthContext::new(service.keys(), service.gate(), context.clock.clone()));
    let observer = web::Data::new(observe::Observer {
        requests: context.metrics.requests(),
        in_flight,
        drain: context.drain.clone(),
    });
    let (state, routes) = (web::Data::from(Arc::clone(service)), Arc::new(S::routes()));
    let (body, budget) = (process.body, process.body_budget.clone());
    let (work, answers) = (LargeWork::default(), LargeAnswers::default());
    let (settings, connected) = (service.server_settings(), Arc::clone(service));
    let mut server = HttpServer::new(move || {
        let (state, auth, observer, routes) = (state.clone(), auth.clone(), observer.clone(), Arc::clone(&routes));
        let (budget, work, answers) = (budget.clone(), work.clone(), answers.clone());
        App::new()
            .configure(move |app| {
                app.app_data(state).app_data(auth).app_data(observer);
                app.app_data(body).app_data(budget).app_data(work).app_data(answers);
                Routes::configure(&routes, app, S::default_service());
            })
            .wrap(from_fn(S::middleware))
            .wrap(Condition::new(is_only_here, from_fn(only_here)))
            .wrap(from_fn(observe::observe))
            .wrap(from_fn(unread::close_unread))
    })
    .workers(process.workers)
    .max_connections(settings.max_connections.div_ceil(process.workers))
    .keep_alive(settings.keep_alive)
    .client_request_timeout(settings.head_timeout)
    .client_disconnect_timeout(settings.disconnect_timeout)
    // Cancel the handler when the client disconnects, so that a closed long-poll does not keep holding a lease request.
    // A client that closes only its sending side looks the same and is treated as disconnected.
    .h1_allow_half_closed(false)
    .tcp_nodelay(true)
    .h1_write_buffer_size(WRITE_BUFFER)
    .on_connect(move |connection, data| {
        if let Some(connection) = connection.downcast_ref::<TcpStream>() {
            connected.on_connect(connection, data);
        }
    })
    .shutdown_timeout(LAST_BYTES_SECONDS)
    .disable_signals();
    for listener in listeners {
        SockRef::from(&listener).listen(BACKLOG)?;
        server = server.listen(listener)?;
    }
    Ok(server.run())
}

fn serve_internal<S: Service>(
    service: &Arc<S>,
    context: ServiceContext,
    process: &ProcessConfig,
    in_flight: InFlight,
    (listener, is_only_here): (TcpListener, bool),
) -> io::Result<Server> {
    let asked = Arc::clone(service);
    let state = web::Data::new(InternalListener {
        drain: context.drain,
        metrics: context.metrics,
        ready: Arc::new(move || {
            let service = Arc::clone(&asked);
            Box::pin(async move { service.ready().await })
        }),
        rpc: InternalListener::rpc_by_path(service.rpc()),
        in_flight,
        tokens: InternalListener::digests(&process.tokens),
    });
    let app = move || {
        let only_here = Condition::new(is_only_here, from_fn(only_here));
        App::new().app_data(state.clone()).configure(internal::configure).wrap(only_here)
    };
    let server = HttpServer::new(app)
        .workers(1)
        // As on the public listener: a call whose caller has gone ends, and does not hold up the drain.
        .h1_allow_half_closed(false)
        .disable_signals()
        .listen(listener)?;
    Ok(server.run())
}

/// actix opens a server's sockets and threads when it is polled for the first time.
async fn spawn_server(mut server: Server) -> io::Result<JoinHandle<()>> {
    if let Poll::Ready(ended) = futures_util::poll!(&mut server) {
        ended?;
        return Err(io::Error::other("the server ended at once"));
    }
    Ok(tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "A listener ended");
        }
    }))
}

fn spawn_worker(worker: Worker) -> JoinHandle<()> {
    let Worker { name, task } = worker;
    tokio::spawn(async move {
        task.await;
        tracing::debug!(worker = name, "A loop ended");
    })
}
