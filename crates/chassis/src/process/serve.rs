//! Two doors, one service behind them, and an orderly end.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App, HttpServer, web};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::door::{DoorHandle, Handlers, PublicDoor};
use super::drain::{Drain, Stage};
use super::internal::{self, InternalDoor};
use crate::auth::AuthContext;
use crate::config::Vars;
use crate::http::{BodyLimits, InFlight, observe};
use crate::http_clients::HttpClients;
use crate::metrics::Metrics;
use crate::service::{Service, ServiceContext, StartError, Worker};
use crate::{Clock, Routes};

/// A quiet time after the last answer, in which a request that was on its way still gets through.
const LINGER: Duration = Duration::from_millis(200);

/// The two sockets of a service, bound before anything else so that addresses are known and a taken port is told early.
#[derive(Debug)]
pub struct Listeners {
    pub public: TcpListener,
    pub internal: TcpListener,
}

impl Listeners {
    pub fn bind(public: SocketAddr, internal: SocketAddr) -> io::Result<Self> {
        Ok(Self { public: TcpListener::bind(public)?, internal: TcpListener::bind(internal)? })
    }

    /// Any two free ports of this machine, for tests and for many services in one process.
    pub fn loopback() -> io::Result<Self> {
        Self::bind(([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into())
    }
}

/// What every service reads, besides its own variables.
pub(super) struct ProcessConfig {
    workers: usize,
    drain_delay: Duration,
    drain_grace: Duration,
    body: BodyLimits,
    tokens: Vec<SecretString>,
}

impl ProcessConfig {
    pub(super) fn read(vars: &mut Vars) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let mut tokens =
            vec![vars.required_secret("INTERNAL_TOKEN", "what services show each other on their internal doors")];
        tokens.extend(
            vars.secret("INTERNAL_TOKEN_PREVIOUS", "the token before, still accepted while it is being replaced"),
        );
        Self {
            workers: vars.parse("WORKERS", "threads that serve requests", cores.min(8)).max(1),
            drain_delay: vars.millis(
                "DRAIN_DELAY_MS",
                "how long to go on after readiness failed, so that nobody sends more",
                0,
            ),
            drain_grace: vars.millis("DRAIN_GRACE_MS", "how long requests in flight may take to end", 25_000),
            body: BodyLimits {
                max_bytes: vars.parse("MAX_BODY_BYTES", "the largest request body", BodyLimits::default().max_bytes),
                timeout: vars.millis("BODY_TIMEOUT_MS", "how long a body may take before its rate counts", 15_000),
                ..BodyLimits::default()
            },
            tokens,
        }
    }
}

/// A service that serves. Dropping it does not stop it; [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    pub public_addr: SocketAddr,
    pub internal_addr: SocketAddr,
    stage: watch::Sender<Stage>,
    servers: [Box<dyn DoorHandle>; 2],
    tasks: Vec<JoinHandle<()>>,
    in_flight: InFlight,
    delay: Duration,
    grace: Duration,
}

/// Starts a service on doors that are bound. Returns when it answers.
pub async fn start<S: Service>(mut vars: Vars, doors: Listeners, clock: Clock) -> Result<Running, StartError> {
    super::install_providers();
    let process = ProcessConfig::read(&mut vars);
    let config = S::configure(&mut vars);
    vars.finish()?;
    let (public_addr, internal_addr) = (doors.public.local_addr()?, doors.internal.local_addr()?);
    let (stage, drain) = Drain::new();
    let metrics = Metrics::new(S::NAME)?;
    let internal_token = process.tokens.first().cloned().unwrap_or_default();
    let context = ServiceContext {
        clock: clock.clone(),
        drain: drain.clone(),
        metrics: metrics.clone(),
        http: HttpClients::new()?,
        internal_token,
        public_addr,
        internal_addr,
    };
    let service = Arc::new(S::build(config, context).await?);
    let auth = web::Data::new(AuthContext::new(service.keys(), service.gate(), clock));
    let in_flight = InFlight::default();
    metrics.watch(in_flight.clone())?;
    let observer = web::Data::new(observe::Observer {
        requests: metrics.requests(),
        in_flight: in_flight.clone(),
        drain: drain.clone(),
    });
    let ready = Arc::clone(&service);
    let door = web::Data::new(InternalDoor {
        drain,
        metrics,
        ready: Arc::new(move || {
            let service = Arc::clone(&ready);
            Box::pin(async move { service.ready().await })
        }),
        rpc: InternalDoor::rpc_by_path(service.rpc()),
        in_flight: in_flight.clone(),
        tokens: InternalDoor::digests(&process.tokens),
    });

    let routes = Arc::new(S::routes());
    let state = web::Data::from(Arc::clone(&service));
    let body = process.body;
    let handlers = Handlers::new(move |app| {
        app.app_data(state.clone()).app_data(auth.clone()).app_data(observer.clone()).app_data(body);
        Routes::configure(&routes, app);
    });
    let public = service.open(PublicDoor {
        listener: doors.public,
        workers: process.workers,
        in_flight: in_flight.clone(),
        handlers,
    })?;
    let internal = HttpServer::new(move || App::new().app_data(door.clone()).configure(internal::configure))
        .workers(1)
        .disable_signals()
        .listen(doors.internal)?
        .run();
    let servers: [Box<dyn DoorHandle>; 2] = [public.handle, Box::new(internal.handle())];
    let mut tasks = vec![tokio::spawn(end_of(public.ended)), tokio::spawn(end_of(internal))];
    tasks.extend(service.workers().into_iter().map(spawn_worker));
    tracing::info!(service = S::NAME, public = %public_addr, internal = %internal_addr, "Serving");
    Ok(Running {
        public_addr,
        internal_addr,
        stage,
        servers,
        tasks,
        in_flight,
        delay: process.drain_delay,
        grace: process.drain_grace,
    })
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

    /// Drains and stops: readiness fails; after the delay whoever waits is answered, nothing new is accepted, what is in
    /// flight ends; what has not ended after the grace is cut off. True when nothing had to be.
    pub async fn stop(self) -> bool {
        let [public, internal] = &self.servers;
        self.stage.send_replace(Stage::Draining);
        tokio::time::sleep(self.delay).await;
        self.stage.send_replace(Stage::Closing);
        // This closes the listener and completes when the connections have gone, idle ones among them: those are not
        // waited for.
        let closing = tokio::spawn(public.close(true));
        let clean = timeout(self.grace, quiet(&self.in_flight)).await.is_ok();
        if !clean {
            tracing::warn!(in_flight = self.in_flight.count(), "Cut off requests that did not end in time");
        }
        public.close(false).await;
        closing.abort();
        internal.close(false).await;
        for task in self.tasks {
            let mut task = task;
            if timeout(Duration::from_secs(5), &mut task).await.is_err() {
                task.abort();
            }
        }
        clean
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

async fn end_of(server: impl Future<Output = io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(%error, "A listener ended");
    }
}

fn spawn_worker(worker: Worker) -> JoinHandle<()> {
    let Worker { name, task } = worker;
    tokio::spawn(async move {
        task.await;
        tracing::debug!(worker = name, "A loop ended");
    })
}
