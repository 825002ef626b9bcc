//! The processes under test, all children of this program, so that it may kill what it likes and knows when it is dead.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A service with a fixed address, so that it is found again after it was killed.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) public: SocketAddr,
    pub(crate) internal: SocketAddr,
    program: PathBuf,
    vars: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(crate) fn new(name: &'static str, logs: &Path, vars: &[(&str, String)]) -> Result<Self> {
        let (public, internal) = (free()?, free()?);
        let mut all: Vec<(String, String)> = vars.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        all.push(("PUBLIC_LISTEN".to_owned(), public.to_string()));
        all.push(("INTERNAL_LISTEN".to_owned(), internal.to_string()));
        let program = std::env::current_exe()?.parent().context("no folder")?.join(format!("ensemble-{name}"));
        let log = logs.join(format!("{name}-{}.log", public.port()));
        Ok(Self { name, public, internal, program, vars: all, log, child: None })
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.vars.push((name.to_owned(), value));
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .env_clear()
            .envs(self.vars.iter().map(|(n, v)| (n, v)))
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} does not start; build it first", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// kill -9, and the end of it seen.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until readiness answers 200; how long it took.
    pub(crate) async fn ready(&mut self, http: &reqwest::Client, patience: Duration) -> Result<Duration> {
        let started = Instant::now();
        let url = format!("http://{}/readyz", self.internal);
        while started.elapsed() < patience {
            if let Ok(answer) = http.get(&url).timeout(Duration::from_secs(1)).send().await
                && answer.status().is_success()
            {
                return Ok(started.elapsed());
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                bail!("{} ended by itself with {status}; see {}", self.name, self.log.display());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("{} is not ready after {patience:?}; see {}", self.name, self.log.display())
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> f64 {
        let Some(pid) = self.child.as_ref().map(Child::id) else { return 0.0 };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    }

    /// Lines that must not be in a log: panics, and what clients sent in confidence.
    pub(crate) fn bad_lines(&self, secrets: &[String]) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let bad =
            |line: &&str| line.contains("panicked at") || secrets.iter().any(|secret| line.contains(secret.as_str()));
        text.lines().filter(bad).take(3).map(|line| format!("X3: {} logged {line:.300}", self.name)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
