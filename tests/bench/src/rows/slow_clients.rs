//! The edge with slow clients: a flood of slow heads and slow bodies (slowhttptest) and 2,000 idle connections. The
//! limit for one address is off, because it would refuse them. Meanwhile normal clients send requests at a steady rate.
//! Their latency is compared with undisturbed rounds in between.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::fixture::Fixture;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const IDLE: usize = 2_000;
/// New slow connections per second, of each kind.
const SLOW_PER_SECOND: u32 = 200;
const NORMAL_CLIENTS: usize = 25;
/// The interval of one normal client. Together they send 500 requests a second.
const PAUSE: Duration = Duration::from_millis(50);
/// One of this many requests uses a new connection.
const FRESH_EVERY: usize = 10;
/// A slower response counts as failed.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn normal_clients(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    if Command::new("slowhttptest").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skipped: slow-clients (slowhttptest is not installed; Debian: slowhttptest)");
        return Ok(());
    }
    let fixture = Fixture::start(machine)?;
    let edge = unlimited_edge(machine, &fixture, &[])?;
    let normal = Arc::new(NormalClients {
        address: edge.public.trim_start_matches("http://").to_owned(),
        request: format!(
            "GET /v1/machines/m HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n",
            fixture.token
        ),
    });
    let time = options.round.max(Duration::from_secs(8));
    let (mut undisturbed, mut under_load, mut succeeded, mut held) =
        (Rounds::default(), Rounds::default(), Rounds::default(), Rounds::default());
    // Warms up the services.
    machine.runtime.block_on(ask(&normal, Duration::from_secs(2)))?;
    for _ in 0..options.rounds {
        undisturbed.push(machine.runtime.block_on(ask(&normal, time))?.p99_ms);
        let slow_clients = SlowClients::start(machine, &edge, &normal, time)?;
        held.push(machine.runtime.block_on(connections(&edge))?);
        let seen = machine.runtime.block_on(ask(&normal, time))?;
        slow_clients.stop()?;
        under_load.push(seen.p99_ms);
        succeeded.push(seen.succeeded);
    }
    ensure!(held.lowest() >= IDLE as f64, "the edge held only {} connections", held.lowest());
    report.alone("edge: connections held with slow and idle clients", "", held, Target::None);
    report.alone("edge: requests of normal clients that succeed meanwhile", "%", succeeded, Target::AtLeast(99.9));
    report.versus("edge: their p99, 500 a second", "ms", under_load, ("undisturbed", undisturbed), Target::AtMost(1.5));
    Ok(())
}

/// An edge without limits on requests and on connections of one address.
pub(super) fn unlimited_edge(machine: &Machine, fixture: &Fixture<'_>, vars: &[(&str, &str)]) -> Result<Service> {
    let unavailable = "http://127.0.0.1:9";
    let mut all = vec![
        ("IDENTITY_URL", fixture.identity.public.as_str()),
        ("IDENTITY_RPC_URL", fixture.identity.internal.as_str()),
        ("MACHINE_REGISTRY_URL", fixture.registry.public.as_str()),
        ("SESSION_STORE_URL", fixture.store.public.as_str()),
        ("ORCHESTRATOR_URL", unavailable),
        ("VOICE_GATEWAY_URL", unavailable),
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

struct NormalClients {
    address: String,
    /// Without the final empty line.
    request: String,
}

struct Seen {
    p99_ms: f64,
    /// In percent.
    succeeded: f64,
}

/// Runs all normal clients. Times count from when a request was due, so that a stall also counts for the requests that
/// it delayed.
async fn ask(normal: &Arc<NormalClients>, time: Duration) -> Result<Seen> {
    let mut clients = JoinSet::new();
    let begin = Instant::now() + Duration::from_millis(20);
    for client in 0..NORMAL_CLIENTS {
        let normal = Arc::clone(normal);
        let first = begin + PAUSE * u32::try_from(client)? / u32::try_from(NORMAL_CLIENTS)?;
        clients.spawn(async move { normal.client(first, begin + time).await });
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client?);
    }
    let all = times.len();
    let mut good: Vec<Duration> = times.into_iter().flatten().collect();
    good.sort_unstable();
    let p99 = good.get(good.len() * 99 / 100).context("no request of a normal client succeeded")?;
    Ok(Seen { p99_ms: p99.as_secs_f64() * 1e3, succeeded: good.len() as f64 * 100.0 / all as f64 })
}

impl NormalClients {
    /// The response times. `None` for failed requests.
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

    /// Sends one request and reads the response. Returns the connection for reuse.
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

/// The length of the response once it is complete. Any status but 200 is an error.
fn whole(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("no content-length")?;
    let len = end + 4 + length.trim().parse::<usize>()?;
    Ok((answer.len() >= len).then_some(len))
}

/// Slow and idle connections, until it is dropped.
struct SlowClients {
    slow: Vec<Child>,
    idle: JoinSet<()>,
}

impl SlowClients {
    /// Returns when all connections are open.
    fn start(machine: &Machine, edge: &Service, normal: &Arc<NormalClients>, time: Duration) -> Result<Self> {
        // Sign-in needs no credentials, so the edge waits for the body. Other paths answer 401 before that.
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
        let mut slow_clients = Self { slow, idle: JoinSet::new() };
        machine.runtime.block_on(async {
            for _ in 0..IDLE {
                let normal = Arc::clone(normal);
                slow_clients.idle.spawn(async move {
                    // Connections that the edge closes are opened again.
                    while let Ok(mut connection) = normal.once(None).await {
                        let _ = connection.read(&mut [0]).await;
                    }
                });
            }
        });
        let wanted = IDLE as f64 + 4.0 * f64::from(SLOW_PER_SECOND);
        let open = machine.runtime.block_on(poll(Duration::from_secs(20), async || {
            connections(edge).await.ok().filter(|open| *open >= wanted)
        }));
        open.context("the slow connections are not open after 20 s")?;
        Ok(slow_clients)
    }

    /// Stops the load, and checks that it lasted until now.
    fn stop(mut self) -> Result<()> {
        for slow in &mut self.slow {
            ensure!(slow.try_wait()?.is_none(), "slowhttptest ended before the round did");
        }
        Ok(())
    }
}

impl Drop for SlowClients {
    fn drop(&mut self) {
        for slow in &mut self.slow {
            let _ = slow.kill();
            let _ = slow.wait();
        }
    }
}

/// The number of open connections, from the metrics of the edge.
async fn connections(edge: &Service) -> Result<f64> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let metrics = http.get(format!("{}/metrics", edge.internal)).send().await?.text().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("ensemble_edge_connections"));
    let value = line.and_then(|line| line.rsplit(' ').next()).context("the edge does not count its connections")?;
    Ok(value.parse()?)
}
