//! The memory of the edge and session-store for 10,000 idle streams, and for many bodies of 16 MiB at the same time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::fixture::Fixture;
use super::slow_clients::unlimited_edge;
use crate::machine::{Machine, Options, Service};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const STREAMS: u64 = 10_000;
/// The number of streams that are being opened at the same time.
const AT_ONCE: usize = 200;
/// The edge needs two sockets for each stream, and some other files.
const FILES: u64 = 2 * STREAMS + 200;
const BODY: usize = 16 << 20;
const BODIES: usize = 16;
/// In this time every stream has received a comment (they come every 15 s), and the memory of the opening is released.
const SETTLED: Duration = Duration::from_secs(20);

pub(crate) fn idle_streams(machine: &Machine, _: &Options, report: &mut Report) -> Result<()> {
    let streams = STREAMS.min(files()?.saturating_sub(200) / 2);
    if streams < STREAMS {
        println!("idle-streams: only {streams} streams, because no process may have more files here (ulimit -n)");
    }
    let fixture = Fixture::start(machine)?;
    let session = fixture.sessions(1)?.pop().context("no session")?;
    let edge = unlimited_edge(machine, &fixture, &[("MAX_STREAMS_PER_CALLER", "60000")])?;
    let request = format!(
        "GET /v3/sessions/{session}/messages/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        fixture.token
    );
    let both = [("edge-proxy", &edge), ("session-store", &fixture.store)];
    // The memory that the first streams initialise is not counted.
    let first = machine.runtime.block_on(open(&edge, &request, AT_ONCE))?;
    settle(machine, Duration::from_secs(1));
    let before = resident(&both)?;
    let rest = machine.runtime.block_on(open(&edge, &request, usize::try_from(streams)? - AT_ONCE))?;
    settle(machine, SETTLED);
    let opened = resident(&both)?;
    settle(machine, 2 * SETTLED);
    let later = resident(&both)?;
    let open = first.iter().chain(&rest).filter(|stream| is_open(stream)).count();
    ensure!(open == usize::try_from(streams)?, "only {open} of {streams} streams lasted");
    for (at, (name, _)) in both.iter().enumerate() {
        let of = |all: &[f64]| all.get(at).copied().unwrap_or(f64::NAN);
        let (before, opened, later) = (of(&before), of(&opened), of(&later));
        let each = (opened - before) * 1024.0 / rest.len() as f64;
        report.alone(
            &format!("{name}: memory of an idle stream, {streams} open"),
            "KiB",
            one(each),
            Target::AtMost(32.0),
        );
        let growth = (later - opened) * 100.0 / opened;
        report.alone(&format!("{name}: growth in 40 s after that"), "%", one(growth.max(0.0)), Target::AtMost(2.0));
        report.alone(&format!("{name}: resident with {streams} streams"), "MiB", one(later), Target::None);
    }
    Ok(())
}

pub(crate) fn large_bodies(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    // The service takes all of the bodies, so that all of them pass through the edge.
    let fixture = Fixture::with(machine, &[("BODY_BUDGET_BYTES", "2000000000")])?;
    let session = fixture.sessions(1)?.pop().context("no session")?;
    let edge = unlimited_edge(machine, &fixture, &[])?;
    // White space is not a JSON document, so the service reads the whole body, answers 400 and stores nothing.
    let head = format!(
        "POST /v3/sessions/{session}/messages/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {BODY}\r\n\r\n",
        fixture.token
    );
    let mut added = Rounds::default();
    machine.runtime.block_on(upload(&edge, &head, 1))?;
    for _ in 0..options.rounds {
        let before = edge.resident_mib()?;
        reset_peak(&edge)?;
        machine.runtime.block_on(upload(&edge, &head, BODIES))?;
        added.push((peak_mib(&edge)? - before).max(0.0));
    }
    report.alone("edge: memory that 16 bodies of 16 MiB at once add", "MiB", added, Target::AtMost(16.0));
    Ok(())
}

/// Lets time pass before a measurement. There is no state to wait for: the figure is what memory does over time.
pub(super) fn settle(machine: &Machine, time: Duration) {
    machine.runtime.block_on(async { tokio::time::sleep(time).await });
}

fn one(value: f64) -> Rounds {
    let mut rounds = Rounds::default();
    rounds.push(value);
    rounds
}

/// The number of files that our processes may open, after raising the limit if possible.
fn files() -> Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= FILES {
        return Ok(soft);
    }
    // Only root may raise the hard limit.
    let wanted = if setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES.max(hard)).is_ok() { FILES } else { hard };
    setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard))?;
    Ok(wanted)
}

fn resident(services: &[(&str, &Service)]) -> Result<Vec<f64>> {
    services.iter().map(|(_, service)| service.resident_mib()).collect()
}

/// Opens streams and reads the head of each response.
pub(super) async fn open(edge: &Service, request: &str, count: usize) -> Result<Vec<TcpStream>> {
    let address = edge.public.trim_start_matches("http://");
    let (mut opening, mut open) = (JoinSet::new(), Vec::with_capacity(count));
    for begun in 0..count {
        if begun >= AT_ONCE {
            open.push(opening.join_next().await.context("nothing is opening")???);
        }
        let (address, request) = (address.to_owned(), request.to_owned());
        opening.spawn(async move {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut head = Vec::with_capacity(1024);
            while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                ensure!(stream.read_buf(&mut head).await? > 0, "a stream was closed at once");
            }
            ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
            Ok(stream)
        });
    }
    while let Some(stream) = opening.join_next().await {
        open.push(stream??);
    }
    Ok(open)
}

/// Reads the received data. A closed stream is not open.
fn is_open(stream: &TcpStream) -> bool {
    let mut piece = [0; 4096];
    loop {
        match stream.try_read(&mut piece) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

async fn upload(edge: &Service, head: &str, bodies: usize) -> Result<()> {
    let mut uploads = JoinSet::new();
    for _ in 0..bodies {
        let (address, head) = (edge.public.trim_start_matches("http://").to_owned(), head.to_owned());
        uploads.spawn(async move {
            let mut connection = TcpStream::connect(&address).await?;
            connection.write_all(head.as_bytes()).await?;
            let piece = [b' '; 64 << 10];
            for _ in 0..BODY / piece.len() {
                connection.write_all(&piece).await?;
            }
            let mut answer = Vec::new();
            while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
                ensure!(connection.read_buf(&mut answer).await? > 0, "no answer came");
            }
            let answer = String::from_utf8_lossy(&answer).into_owned();
            ensure!(answer.starts_with("HTTP/1.1 400"), "{answer}");
            Ok(())
        });
    }
    while let Some(upload) = uploads.join_next().await {
        upload??;
    }
    Ok(())
}

/// The highest resident memory since the last reset (`VmHWM` of proc(5)).
pub(super) fn peak_mib(service: &Service) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn reset_peak(service: &Service) -> Result<()> {
    std::fs::write(format!("/proc/{}/clear_refs", service.pid()), "5").context("the peak cannot be reset")
}

/// Sends this request on many connections and reads nothing of the answers.
pub(crate) async fn unread(edge: &str, request: &str, count: usize) -> Result<Vec<TcpStream>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut connection = TcpStream::connect(edge.trim_start_matches("http://")).await?;
        connection.write_all(request.as_bytes()).await?;
        all.push(connection);
    }
    Ok(all)
}
