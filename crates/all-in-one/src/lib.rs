//! Runs every service in one process, each on its own loopback sockets behind the edge. The services talk to each other
//! over the same protocols as in production, but one command starts them and no database server is needed.

mod addresses;
pub mod api;
mod secrets;
mod settings;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result};
use ensemble_chassis::entrance::OnlyHere;
pub use ensemble_chassis::process::TlsSettings;
use ensemble_chassis::process::install_providers;
use ensemble_chassis::{Clock, Listeners, Running, Service, Vars, start};
use ensemble_edge_proxy::EdgeProxy;
use ensemble_identity::Identity;
use ensemble_machine_registry::MachineRegistry;
use ensemble_orchestrator::Orchestrator;
use ensemble_session_store::SessionStore;
use ensemble_voice_gateway::VoiceGateway;
use futures_util::future::join_all;
use tokio::signal::unix::{SignalKind, signal};

pub use secrets::data_id;
use settings::Settings;
pub use settings::dialled;

/// What to start, and where.
pub struct Config {
    /// The folder of databases and keys. It is created when it does not exist.
    pub data: PathBuf,
    /// The address of the edge. Port 0 takes a free port.
    pub listen: SocketAddr,
    pub clock: Clock,
    /// Variables that override those of the process. A variable applies to all services, or to one service when its
    /// name is the prefix (`SESSION_STORE_DATABASE_URL`).
    pub vars: Vec<(String, String)>,
    /// HTTPS at a separate address, in addition to `listen`.
    pub tls: Option<TlsSettings>,
    /// Where a proxy on this machine carries requests for `PUBLIC_BASE_URL` to ([`proxy_listener`]).
    pub proxy: Option<TcpListener>,
}

impl Config {
    pub fn new(data: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self { data: data.into(), listen, clock: Clock::system(), vars: Vec::new(), tls: None, proxy: None }
    }
}

/// All services, running.
#[derive(Debug)]
pub struct Stack {
    url: String,
    for_others: Vec<String>,
    for_proxy: Option<SocketAddr>,
    edge: (&'static str, Running),
    behind: [(&'static str, Running); 5],
}

impl Stack {
    /// Starts everything, and returns when the edge answers.
    pub async fn start(mut config: Config) -> Result<Self> {
        install_providers();
        if let Some(tls) = &config.tls {
            tls.check()?;
            let values = [
                ("LISTEN", tls.listen.to_string()),
                ("CERTIFICATE", tls.certificate.display().to_string()),
                ("CERTIFICATE_KEY", tls.key.display().to_string()),
            ];
            config.vars.extend(values.map(|(name, value)| (format!("EDGE_PROXY_TLS_{name}"), value)));
        }
        // A start that fails because of its address leaves no folder.
        let mut edge = Listeners::bind(config.listen, ([127, 0, 0, 1], 0).into())
            .with_context(|| format!("cannot listen on {}; choose another address with --listen", config.listen))?;
        edge.proxied = config.proxy.take();
        let for_proxy = edge.proxied.as_ref().map(TcpListener::local_addr).transpose()?;
        let secrets = secrets::prepare(&config.data)
            .with_context(|| format!("{} cannot be used for data and keys", config.data.display()))?;
        let [identity, machines, sessions, runs, voice] = inner_listeners()?;
        let inner = [&identity, &machines, &sessions, &runs, &voice];
        let settings = Settings::new(&config, secrets, &inner, &edge, &addresses::of_this_machine())?;
        edge.only_here.internal = true;
        edge.entrances.loopback = settings.names_here();
        edge.entrances.proxy = for_proxy.map(|at| (at, settings.public_name()));
        let clock = &config.clock;
        let behind = [
            launch::<Identity>(&settings, identity, clock).await?,
            launch::<MachineRegistry>(&settings, machines, clock).await?,
            launch::<SessionStore>(&settings, sessions, clock).await?,
            launch::<Orchestrator>(&settings, runs, clock).await?,
            launch::<VoiceGateway>(&settings, voice, clock).await?,
        ];
        let edge = launch::<EdgeProxy>(&settings, edge, clock).await?;
        Ok(Self { url: settings.url().to_owned(), for_others: settings.for_others(), for_proxy, edge, behind })
    }

    /// The edge's address on this machine: `http://127.0.0.1:8080`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The addresses for people on other machines: `PUBLIC_BASE_URL`, or those of this machine. None when it listens on
    /// loopback only.
    pub fn for_others(&self) -> &[String] {
        &self.for_others
    }

    /// The address for a proxy on this machine.
    pub fn for_proxy(&self) -> Option<SocketAddr> {
        self.for_proxy
    }

    /// One service by its name, for example `session-store`.
    pub fn service(&self, name: &str) -> Option<&Running> {
        let mut all = self.behind.iter().chain([&self.edge]);
        all.find(|(known, _)| *known == name).map(|(_, running)| running)
    }

    /// Drains the edge, and then the services behind it all at once. True when no request had to be cut off.
    pub async fn stop(self) -> bool {
        let drain = async |(name, running): (&'static str, Running)| {
            let in_time = running.stop().await;
            if !in_time {
                tracing::warn!(service = name, "The service did not drain in time");
            }
            in_time
        };
        let edge = drain(self.edge).await;
        join_all(self.behind.map(drain)).await.into_iter().fold(edge, |all, in_time| all & in_time)
    }
}

/// Runs until SIGINT or SIGTERM, then drains. A second signal ends the process at once. `ready` is called when
/// everything answers.
pub async fn run<F: Future<Output = ()>>(config: Config, ready: impl FnOnce(&Stack) -> F) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut stop_signal = async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
    let stack = tokio::select! {
        started = Stack::start(config) => started?,
        () = stop_signal() => return Ok(()),
    };
    let after_start = ready(&stack);
    tokio::select! {
        () = stop_signal() => {}
        () = after_start => stop_signal().await,
    }
    tracing::info!("Draining; a second signal ends at once");
    tokio::select! {
        _ = stack.stop() => Ok(()),
        () = stop_signal() => anyhow::bail!("ended before everything was drained"),
    }
}

/// Listens for a proxy on this machine. Port 0 takes a free port.
pub fn proxy_listener(port: u16) -> Result<TcpListener> {
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    TcpListener::bind(at)
        .with_context(|| format!("cannot listen on {at} for a proxy; choose another port with --proxy-port"))
}

/// Those of the services behind the edge. Only programs of this computer call them.
fn inner_listeners() -> io::Result<[Listeners; 5]> {
    let inner = || -> io::Result<Listeners> {
        let mut listeners = Listeners::loopback()?;
        listeners.only_here = OnlyHere { public: true, internal: true };
        Ok(listeners)
    };
    Ok([inner()?, inner()?, inner()?, inner()?, inner()?])
}

async fn launch<S: Service>(
    settings: &Settings,
    listeners: Listeners,
    clock: &Clock,
) -> Result<(&'static str, Running)> {
    let vars: Vars = settings.of(S::NAME);
    let running =
        start::<S>(vars, listeners, clock.clone()).await.with_context(|| format!("{} does not start", S::NAME))?;
    Ok((S::NAME, running))
}
