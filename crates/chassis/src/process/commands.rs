//! The commands of a service's program: `serve`, `migrate`, `healthcheck`, `config`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::serve::{Listeners, start};
use super::settings::ProcessConfig;
use super::telemetry::Telemetry;
use crate::service::{Service, StartError};
use crate::{Clock, Vars};

/// EX_USAGE of sysexits.h: the configuration is wrong, and another start will not help.
const EXIT_CONFIG: u8 = 64;

/// The whole `main` of a service.
pub fn run<S: Service>() -> ExitCode {
    super::install_providers();
    let command = std::env::args().nth(1);
    match command.as_deref() {
        None | Some("serve") => with_config::<S>(serve::<S>),
        Some("migrate") => with_config::<S>(migrate::<S>),
        Some("healthcheck") => healthcheck::<S>(),
        Some("config") => print_config::<S>(),
        Some(other) => {
            eprintln!(
                "{}: there is no command {other:?}; there are: serve (the default), migrate, healthcheck, config",
                S::NAME
            );
            ExitCode::from(EXIT_CONFIG)
        }
    }
}

struct Addresses {
    public: SocketAddr,
    internal: SocketAddr,
}

fn addresses<S: Service>(vars: &mut Vars) -> Addresses {
    Addresses {
        public: vars.parse("PUBLIC_LISTEN", "address of the public listener", ([0, 0, 0, 0], S::DEFAULT_PORT).into()),
        internal: vars.parse(
            "INTERNAL_LISTEN",
            "address of the internal listener: rpc, health, metrics",
            ([0, 0, 0, 0], S::DEFAULT_PORT + 1000).into(),
        ),
    }
}

fn with_config<S: Service>(command: fn(Addresses) -> Result<bool, StartError>) -> ExitCode {
    let mut vars = Vars::from_env();
    let addresses = addresses::<S>(&mut vars);
    let telemetry = Telemetry::configure(&mut vars);
    ProcessConfig::read(&mut vars);
    drop(S::configure(&mut vars));
    if let Err(faults) = vars.finish() {
        eprintln!("{}: {faults}", S::NAME);
        return ExitCode::from(EXIT_CONFIG);
    }
    let flush = telemetry.install(S::NAME);
    let outcome = command(addresses);
    drop(flush);
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error:#}", S::NAME);
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, StartError> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn serve<S: Service>(at: Addresses) -> Result<bool, StartError> {
    let listeners = Listeners::bind(at.public, at.internal)
        .map_err(|error| anyhow::anyhow!("cannot listen on {} and {}: {error}", at.public, at.internal))?;
    runtime()?.block_on(async {
        // Both signals start the drain. The handlers are installed before anything else starts.
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut signalled = async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
        let running = tokio::select! {
            started = start::<S>(Vars::from_env(), listeners, Clock::system()) => started?,
            () = signalled() => return Ok(true),
        };
        signalled().await;
        tracing::info!("Draining; a second signal ends at once");
        tokio::select! {
            clean = running.stop() => {
                tracing::info!(clean, "Ended");
                Ok(true)
            }
            () = signalled() => Ok(false),
        }
    })
}

fn migrate<S: Service>(_: Addresses) -> Result<bool, StartError> {
    let mut vars = Vars::from_env();
    let config = S::configure(&mut vars);
    runtime()?.block_on(S::migrate(config))?;
    Ok(true)
}

/// Checks the readiness of the running service. Container health checks use this because the image has no curl.
fn healthcheck<S: Service>() -> ExitCode {
    let mut vars = Vars::from_env();
    let port = addresses::<S>(&mut vars).internal.port();
    match readiness(port) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{} is not ready", S::NAME);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{} does not answer on port {port}: {error}", S::NAME);
            ExitCode::FAILURE
        }
    }
}

fn readiness(port: u16) -> std::io::Result<bool> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    Ok(head.ends_with(b"200"))
}

#[expect(clippy::print_stdout, reason = "the `config` command prints the variables")]
fn print_config<S: Service>() -> ExitCode {
    let mut vars = Vars::from_fn(|_| None);
    addresses::<S>(&mut vars);
    drop(Telemetry::configure(&mut vars));
    ProcessConfig::read(&mut vars);
    drop(S::configure(&mut vars));
    for variable in vars.known() {
        println!("{}\n    {} [{}]", variable.name, variable.meaning, variable.default);
    }
    ExitCode::SUCCESS
}
