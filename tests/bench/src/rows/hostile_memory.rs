//! The memory of the services while clients send bodies that they do not finish, and ask for streams and pages that they do
//! not read.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fixture::{Fixture, sign_in};
use super::held::{open, peak_mib, settle, unread};
use super::slow_clients::unlimited_edge;
use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const UNFINISHED: usize = 50;
const BODY: usize = 16 << 20;
const STREAMS: usize = 1_000;
const UNREAD_PAGES: usize = 230;
const LONG_MESSAGES: usize = 60;
/// A client gives up sending a body when the service takes nothing more.
const STUCK: Duration = Duration::from_secs(5);
const MEMORY_RETURNS: Duration = Duration::from_secs(60);

pub(crate) fn held_against_us(machine: &Machine, _: &Options, report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(machine)?;
    let orchestrator = machine.service(
        "orchestrator",
        &[
            ("DATABASE_URL", &machine.database("bench_hostile_runs")?),
            ("IDENTITY_RPC_URL", &fixture.identity.internal),
            ("MACHINE_REGISTRY_RPC_URL", &fixture.registry.internal),
        ],
    )?;
    let limits = [("MAX_STREAMS_PER_CALLER", "60000"), ("ORCHESTRATOR_URL", orchestrator.public.as_str())];
    let edge = unlimited_edge(machine, &fixture, &limits)?;
    let session = fixture.sessions(1)?.pop().context("no session")?;
    let services = [
        ("edge-proxy", &edge),
        ("identity", &fixture.identity),
        ("machine-registry", &fixture.registry),
        ("session-store", &fixture.store),
        ("orchestrator", &orchestrator),
    ];
    let idle: Vec<f64> = services.iter().map(|(_, service)| service.resident_mib()).collect::<Result<_>>()?;
    let append = format!("/v3/sessions/{session}/messages");
    // The bodies come from another account, whose share of the budget they spend.
    let bad = machine.runtime.block_on(sign_in(&fixture.identity.public))?;
    let bearer = format!("Authorization: Bearer {bad}\r\n");
    let bodies = [
        ("/v1/auth", ""),
        (append.as_str(), ""),
        (append.as_str(), bearer.as_str()),
        ("/v1/sessions", bearer.as_str()),
        ("/v1/machines", bearer.as_str()),
        ("/v1/orchestrator/runs", bearer.as_str()),
    ];
    let request =
        format!("GET {append}/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", fixture.token);
    let held = machine.runtime.block_on(async {
        let mut sending = JoinSet::new();
        for (path, credential) in bodies {
            for _ in 0..UNFINISHED {
                sending.spawn(unfinished(edge.public.clone(), path.to_owned(), credential.to_owned()));
            }
        }
        let streams = open(&edge, &request, STREAMS).await?;
        Ok::<_, anyhow::Error>((sending, streams))
    })?;
    let content = "x".repeat(1_000_000);
    for at in 0..LONG_MESSAGES {
        let body = json!({ "content": content, "localId": format!("long-{at}") });
        fixture.call(&fixture.store.public, "POST", &append, body)?;
    }
    let page = request.replace("/stream HTTP", "?limit=500 HTTP");
    let pages = machine.runtime.block_on(unread(&edge.public, &page, UNREAD_PAGES))?;
    settle(machine, Duration::from_secs(10));
    for (name, service) in services {
        report.alone(
            &format!("{name}: peak with hostile clients"),
            "MiB",
            one(peak_mib(service)?),
            Target::AtMost(128.0),
        );
    }
    drop((held, pages));
    settle(machine, MEMORY_RETURNS);
    for ((name, service), idle) in services.into_iter().zip(idle) {
        let left = service.resident_mib()?;
        let target = Target::AtMost((1.5 * idle).max(64.0));
        report.alone(&format!("{name}: resident 60 s after they have gone"), "MiB", one(left), target);
    }
    Ok(())
}

/// Sends all of a body but its last byte, as far as the service takes it, and keeps the connection.
async fn unfinished(edge: String, path: String, credential: String) -> Result<Option<TcpStream>> {
    let mut connection = TcpStream::connect(edge.trim_start_matches("http://")).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{credential}Content-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await?;
    let piece = vec![b' '; 64 << 10];
    for _ in 0..BODY / piece.len() - 1 {
        match timeout(STUCK, connection.write_all(&piece)).await {
            Ok(Ok(())) => {}
            // Refused, which is as good.
            Ok(Err(_)) => return Ok(None),
            Err(_) => break,
        }
    }
    Ok(Some(connection))
}

fn one(value: f64) -> Rounds {
    let mut rounds = Rounds::default();
    rounds.push(value);
    rounds
}
