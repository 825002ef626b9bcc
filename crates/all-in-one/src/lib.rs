//! Every service in one process, each on loopback sockets of its own, the edge in front: the same wire as in production,
//! with one command and no database server.

pub mod api;
mod secrets;
mod settings;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ensemble_chassis::process::install_providers;
use ensemble_chassis::{Clock, Listeners, Running, Service, Vars, start};
use ensemble_edge_proxy::EdgeProxy;
use ensemble_identity::Identity;
use ensemble_machine_registry::MachineRegistry;
use ensemble_orchestrator::Orchestrator;
use ensemble_session_store::SessionStore;
use ensemble_voice_gateway::VoiceGateway;
use tokio::signal::unix::{SignalKind, signal};

use settings::Settings;

/// What to start, and where.
pub struct Config {
    /// Databases and keys; made when it is not there.
    pub data: PathBuf,
    /// Where the edge listens; port 0 takes a free one.
    pub listen: SocketAddr,
    pub clock: Clock,
    /// Variables that win over those of the process: any variable of any service, or one service's alone when its name
    /// stands before it (`SESSION_STORE_DATABASE_URL`).
    pub vars: Vec<(String, String)>,
}

impl Config {
    pub fn new(data: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self { data: data.into(), listen, clock: Clock::system(), vars: Vec::new() }
    }
}

/// All services, serving.
#[derive(Debug)]
pub struct Stack {
    url: String,
    /// In the order in which they stop: the edge first, then whoever calls others.
    running: Vec<(&'static str, Running)>,
}

impl Stack {
    /// Starts everything; returns when the edge answers.
    pub async fn start(config: Config) -> Result<Self> {
        install_providers();
        let secrets = secrets::prepare(&config.data)
            .with_context(|| format!("{} cannot be used for data and keys", config.data.display()))?;
        let edge = Listeners::bind(config.listen, ([127, 0, 0, 1], 0).into())
            .with_context(|| format!("cannot listen on {}; choose another address with --listen", config.listen))?;
        let [identity, machines, sessions, runs, voice] = free_doors()?;
        let settings = Settings::new(&config, secrets, &[&identity, &machines, &sessions, &runs, &voice], &edge)?;
        let clock = &config.clock;
        let mut running = vec![
            launch::<Identity>(&settings, identity, clock).await?,
            launch::<MachineRegistry>(&settings, machines, clock).await?,
            launch::<SessionStore>(&settings, sessions, clock).await?,
            launch::<Orchestrator>(&settings, runs, clock).await?,
            launch::<VoiceGateway>(&settings, voice, clock).await?,
            launch::<EdgeProxy>(&settings, edge, clock).await?,
        ];
        running.reverse();
        Ok(Self { url: settings.public_url().to_owned(), running })
    }

    /// The edge's address as people type it: `http://127.0.0.1:8080`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A service by its name, as in `session-store`.
    pub fn service(&self, name: &str) -> Option<&Running> {
        self.running.iter().find(|(known, _)| *known == name).map(|(_, running)| running)
    }

    /// Drains one after the other. True when nothing had to be cut off.
    pub async fn stop(self) -> bool {
        let mut clean = true;
        for (name, running) in self.running {
            let in_time = running.stop().await;
            if !in_time {
                tracing::warn!(service = name, "Did not end in time");
            }
            clean &= in_time;
        }
        clean
    }
}

/// Runs until SIGINT or SIGTERM, then drains; a second signal ends at once. `ready` is called when everything answers.
pub async fn run<F: Future<Output = ()>>(config: Config, ready: impl FnOnce(&Stack) -> F) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut told = async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
    let stack = tokio::select! {
        started = Stack::start(config) => started?,
        () = told() => return Ok(()),
    };
    let attending = ready(&stack);
    tokio::select! {
        () = told() => {}
        () = attending => told().await,
    }
    tracing::info!("Draining; a second signal ends at once");
    tokio::select! {
        _ = stack.stop() => Ok(()),
        () = told() => anyhow::bail!("ended before everything was drained"),
    }
}

fn free_doors() -> io::Result<[Listeners; 5]> {
    Ok([
        Listeners::loopback()?,
        Listeners::loopback()?,
        Listeners::loopback()?,
        Listeners::loopback()?,
        Listeners::loopback()?,
    ])
}

async fn launch<S: Service>(settings: &Settings, doors: Listeners, clock: &Clock) -> Result<(&'static str, Running)> {
    let vars: Vars = settings.of(S::NAME);
    let running =
        start::<S>(vars, doors, clock.clone()).await.with_context(|| format!("{} does not start", S::NAME))?;
    Ok((S::NAME, running))
}
