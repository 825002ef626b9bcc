//! The edge under siege: a flood of slow heads and slow bodies (slowhttptest) and 2,000 idle connections, all without the
//! cap for one address, which would end it at once. Meanwhile honest clients ask at a steady rate, and their answers are
//! compared with those of undisturbed minutes in between.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::world::World;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const IDLE: usize = 2_000;
/// New slow connections in a second, of each kind, as long as the siege lasts.
const SLOW_PER_SECOND: u32 = 200;
const HONEST: usize = 25;
/// Between two requests of one honest client: together they ask 500 times a second.
const PAUSE: Duration = Duration::from_millis(50);
/// One request in so many comes on a connection of its own.
const FRESH_EVERY: usize = 10;
/// An honest answer that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn honest_clients(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    if Command::new("slowhttptest").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skipped: siege (slowhttptest is not installed; Debian: slowhttptest)");
        return Ok(());
    }
    let world = World::start(machine)?;
    let edge = edge_before(machine, &world, &[])?;
    let honest = Arc::new(Honest {
        address: edge.public.trim_start_matches("http://").to_owned(),
        request: format!("GET /v1/machines/m HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {}\r\n", world.token),
    });
    let time = options.round.max(Duration::from_secs(8));
    let (mut calm, mut besieged, mut succeeded, mut held) =
        (Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default());
    // The first answers of all warm everything up.
    machine.runtime.block_on(ask(&honest, Duration::from_secs(2)))?;
    for _ in 0..options.rounds {
        calm.push(machine.runtime.block_on(ask(&honest, time))?.p99_ms);
        let siege = Siege::lay(machine, &edge, &honest, time)?;
        held.push(connections(machine, &edge)?);
        let seen = machine.runtime.block_on(ask(&honest, time))?;
        siege.lift()?;
        besieged.push(seen.p99_ms);
        succeeded.push(seen.succeeded);
    }
    ensure!(held.lowest() >= IDLE as f64, "the siege held only {} connections", held.lowest());
    report.alone("edge: connections held in a siege of slow and idle ones", "", held, Target::None);
    report.alone("edge: honest requests that succeed in it", "%", succeeded, Target::AtLeast(99.9));
    report.beside("edge: their p99, 500 a second", "ms", besieged, ("undisturbed", calm), Target::AtMost(1.5));
    Ok(())
}

/// An edge without limits on requests and on connections of one address.
pub(super) fn edge_before(machine: &Machine, world: &World<'_>, vars: &[(&str, &str)]) -> Result<Service> {
    let nobody = "http://127.0.0.1:9";
    let mut all = vec![
        ("IDENTITY_URL", world.identity.public.as_str()),
        ("IDENTITY_RPC_URL", world.identity.internal.as_str()),
        ("MACHINE_REGISTRY_URL", world.registry.public.as_str()),
        ("SESSION_STORE_URL", world.store.public.as_str()),
        ("ORCHESTRATOR_URL", nobody),
        ("VOICE_GATEWAY_URL", nobody),
        ("PUBLIC_BASE_URL", "http://127.0.0.1:8080"),
        ("LIMIT_ACCOUNT", "0"),
        ("LIMIT_ADDRESS", "0"),
        ("LIMIT_SIGN_IN", "0"),
        ("MAX_CONNECTIONS", "60000"),
        ("MAX_CONNECTIONS_PER_ADDRESS", "60000"),
    ];
    all.extend_from_slice(vars);
    machine.service("edge-proxy", &all)
}

struct Honest {
    address: String,
    /// Without the empty line at its end.
    request: String,
}

struct Seen {
    p99_ms: f64,
    /// In per cent.
    succeeded: f64,
}

/// All honest clients for a while. Times count from when a request was due, so that a stall is not hidden by the requests
/// that it held up.
async fn ask(honest: &Arc<Honest>, time: Duration) -> Result<Seen> {
    let mut clients = JoinSet::new();
    let begin = Instant::now() + Duration::from_millis(20);
    for client in 0..HONEST {
        let honest = Arc::clone(honest);
        let first = begin + PAUSE * u32::try_from(client)? / u32::try_from(HONEST)?;
        clients.spawn(async move { honest.client(first, begin + time).await });
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client?);
    }
    let all = times.len();
    let mut good: Vec<Duration> = times.into_iter().flatten().collect();
    good.sort_unstable();
    let p99 = good.get(good.len() * 99 / 100).context("no honest request succeeded")?;
    Ok(Seen { p99_ms: p99.as_secs_f64() * 1e3, succeeded: good.len() as f64 * 100.0 / all as f64 })
}

impl Honest {
    /// The times of its answers, nothing for those that failed.
    async fn client(&self, first: Instant, end: Instant) -> Vec<Option<Duration>> {
        let (mut times, mut kept, mut due) = (Vec::new(), None, first);
        while due < end {
            sleep_until(due.into()).await;
            let is_fresh = times.len() % FRESH_EVERY == FRESH_EVERY - 1;
            let connection = if is_fresh { None } else { kept.take() };
            match timeout(TIMEOUT, self.once(connection)).await {
                Ok(Ok(connection)) => {
                    times.push(Some(due.elapsed()));
                    kept = Some(connection);
                }
                _ => times.push(None),
            }
            due += PAUSE;
        }
        times
    }

    /// One request and its whole answer; the connection can be used again.
    async fn once(&self, connection: Option<TcpStream>) -> Result<TcpStream> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => TcpStream::connect(&self.address).await?,
        };
        connection.set_nodelay(true)?;
        connection.write_all(format!("{}\r\n", self.request).as_bytes()).await?;
        let mut answer = Vec::with_capacity(2048);
        loop {
            ensure!(connection.read_buf(&mut answer).await? > 0, "the edge closed the connection");
            if let Some(len) = whole(&answer)? {
                ensure!(answer.len() == len, "more than one answer came");
                return Ok(connection);
            }
        }
    }
}

/// How long the answer is, once its head is there and all of it has come. Anything but 200 is an error.
fn whole(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("no content-length")?;
    let len = end + 4 + length.trim().parse::<usize>()?;
    Ok((answer.len() >= len).then_some(len))
}

/// Slow ones and idle ones, for as long as it lives.
struct Siege {
    slow: Vec<Child>,
    idle: JoinSet<()>,
}

impl Siege {
    /// Returns when all of it is there.
    fn lay(machine: &Machine, edge: &Service, honest: &Arc<Honest>, time: Duration) -> Result<Self> {
        // Signing in is open to all, so its body is waited for; elsewhere a stranger hears 401 before that.
        let slow = [["-H", "GET", "/v1/machines"], ["-B", "POST", "/v1/auth"]]
            .into_iter()
            .map(|[kind, verb, path]| {
                let url = format!("{}{path}", edge.public);
                let seconds = time.as_secs() + 20;
                let connections = seconds * u64::from(SLOW_PER_SECOND);
                Command::new("slowhttptest")
                    .args([kind, "-t", verb, "-u", &url, "-i", "2", "-p", "3", "-s", "8192", "-f", "application/json"])
                    .args([
                        "-r",
                        &SLOW_PER_SECOND.to_string(),
                        "-c",
                        &connections.to_string(),
                        "-l",
                        &seconds.to_string(),
                    ])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .context("slowhttptest does not start")
            })
            .collect::<Result<Vec<Child>>>()?;
        let mut siege = Self { slow, idle: JoinSet::new() };
        machine.runtime.block_on(async {
            for _ in 0..IDLE {
                let honest = Arc::clone(honest);
                siege.idle.spawn(async move {
                    // What the edge closes after a while comes back.
                    while let Ok(mut connection) = honest.once(None).await {
                        let _ = connection.read(&mut [0]).await;
                    }
                });
            }
        });
        let begun = Instant::now();
        while connections(machine, edge)? < IDLE as f64 + 4.0 * f64::from(SLOW_PER_SECOND) {
            ensure!(begun.elapsed() < Duration::from_secs(20), "the siege is not laid after 20 s");
            machine.runtime.block_on(async { sleep(Duration::from_millis(100)).await });
        }
        Ok(siege)
    }

    /// Ends it, having made sure that it lasted.
    fn lift(mut self) -> Result<()> {
        for slow in &mut self.slow {
            ensure!(slow.try_wait()?.is_none(), "slowhttptest ended before the round did");
        }
        Ok(())
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        for slow in &mut self.slow {
            let _ = slow.kill();
            let _ = slow.wait();
        }
    }
}

/// The connections that the edge holds, by its own count.
fn connections(machine: &Machine, edge: &Service) -> Result<f64> {
    let metrics = machine.runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build()?;
        http.get(format!("{}/metrics", edge.internal)).send().await?.text().await.map_err(anyhow::Error::from)
    })?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("ensemble_edge_connections"));
    let value = line.and_then(|line| line.rsplit(' ').next()).context("the edge does not count its connections")?;
    Ok(value.parse()?)
}
