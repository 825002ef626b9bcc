//! The load generators: wrk for HTTP and pgbench for PostgreSQL. This file only parses their output.

use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The result of one round of wrk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Runs wrk with a Lua script, which reads `env`. Fails when a response was not 2xx.
pub(crate) fn wrk(url: &str, clients: u32, time: Duration, script: &str, env: &[(&str, &str)]) -> Result<Http> {
    let threads = clients.min(2);
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("wrk").join(script);
    let mut command = Command::new("wrk");
    command
        .args(["--latency", "--timeout", "10s", "-t", &threads.to_string(), "-c", &clients.to_string()])
        .args(["-d", &format!("{}s", time.as_secs().max(1)), "-s"])
        .arg(lua)
        .arg(url)
        .envs(env.iter().copied());
    let output = command.output().context("wrk is not installed (Debian: wrk)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("Non-2xx") {
        bail!("wrk against {url}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    if let Some(line) = text.lines().find(|line| line.contains("Socket errors")) {
        eprintln!("   {}", line.trim());
    }
    Ok(Http {
        per_second: after(&text, "Requests/sec:").and_then(|t| t.parse().ok()).context("wrk printed no rate")?,
        p50_ms: after(&text, "50%").and_then(millis).context("wrk printed no p50")?,
        p99_ms: after(&text, "99%").and_then(millis).context("wrk printed no p99")?,
    })
}

/// Runs pgbench with a script and returns the transactions per second.
pub(crate) fn pgbench(program: &Path, url: &str, clients: u32, time: Duration, script: &str) -> Result<f64> {
    // It has no name, so nothing is left when this run is ended early.
    let mut file = tempfile::tempfile()?;
    file.write_all(script.as_bytes())?;
    file.rewind()?;
    let output = Command::new(program)
        .args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &clients.min(2).to_string()])
        .args(["-T", &time.as_secs().max(1).to_string(), "-f", "-"])
        .arg(url)
        .stdin(file)
        .output()
        .context("pgbench does not start")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = text.lines().find(|line| line.starts_with("tps = ")).and_then(|line| line.split_whitespace().nth(2));
    tps.and_then(|t| t.parse().ok())
        .with_context(|| format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)?.split_whitespace().next())
}

/// wrk writes `953.00us`, `1.20ms`, `2.04s`.
fn millis(text: &str) -> Option<f64> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0), ("m", 60_000.0)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}
