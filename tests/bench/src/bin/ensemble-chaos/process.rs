//! The services under test. They are child processes, so that this program can kill them and observe their exit.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ensemble_testkit::poll;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A service with fixed addresses, so that it has the same ones after a restart.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) public: SocketAddr,
    pub(crate) internal: SocketAddr,
    program: PathBuf,
    vars: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) memory_mib: f64,
    pub(crate) files: f64,
    pub(crate) threads: f64,
}

impl Process {
    pub(crate) fn new(name: &'static str, logs: &Path, vars: &[(&str, String)]) -> Result<Self> {
        let (public, internal) = (free()?, free()?);
        let mut all: Vec<(String, String)> = vars.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        all.push(("PUBLIC_LISTEN".to_owned(), public.to_string()));
        all.push(("INTERNAL_LISTEN".to_owned(), internal.to_string()));
        let program = std::env::current_exe()?.parent().context("no folder")?.join(format!("ensemble-{name}"));
        let log = logs.join(format!("{name}.log"));
        Ok(Self { name, public, internal, program, vars: all, log, child: None })
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.vars.push((name.to_owned(), value.into()));
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.public)
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

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal. Returns the exit status and the time to the exit.
    pub(crate) async fn end_with(&mut self, signal: Signal, timeout: Duration) -> Result<(ExitStatus, Duration)> {
        let Some(child) = self.child.as_mut() else { bail!("{} is not running", self.name) };
        let begun = Instant::now();
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        let exited = poll(timeout, async || child.try_wait().transpose()).await;
        let Some(status) = exited else {
            bail!("{} has not exited {timeout:?} after {signal}; see {}", self.name, self.log.display())
        };
        self.child = None;
        Ok((status?, begun.elapsed()))
    }

    /// Waits until the readiness check succeeds. Returns how long that took.
    pub(crate) async fn ready(&mut self, http: &reqwest::Client, timeout: Duration) -> Result<Duration> {
        let started = Instant::now();
        let url = format!("http://{}/readyz", self.internal);
        let outcome = poll(timeout, async || {
            let answer = http.get(&url).timeout(Duration::from_secs(1)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Some(Ok(started.elapsed()));
            }
            self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()).map(Err)
        })
        .await;
        match outcome {
            Some(Ok(took)) => Ok(took),
            Some(Err(status)) => bail!("{} exited by itself with {status}; see {}", self.name, self.log.display()),
            None => bail!("{} is not ready after {timeout:?}; see {}", self.name, self.log.display()),
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let Some(pid) = self.child.as_ref().map(Child::id) else { return Usage::default() };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().trim_end_matches(" kB").parse::<f64>().ok()
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Usage {
            memory_mib: number("VmRSS:").unwrap_or(0.0) / 1024.0,
            files: files as f64,
            threads: number("Threads:").unwrap_or(0.0),
        }
    }

    /// X3: secrets or panics in the log, in the metrics or on the command line.
    pub(crate) async fn leaks(&self, http: &reqwest::Client, secrets: &[String]) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let metrics = match http.get(format!("http://{}/metrics", self.internal)).send().await {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(error) => return vec![format!("X3: {} gives no metrics: {error}", self.name)],
        };
        let pid = self.child.as_ref().map_or(0, Child::id);
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut found = bad_lines(&format!("the log of {}", self.name), &log, secrets);
        found.extend(bad_lines(&format!("the metrics of {}", self.name), &metrics, secrets));
        found.extend(bad_lines(&format!("the command line of {}", self.name), &command, secrets));
        found
    }
}

/// The first few lines with a secret or a panic.
fn bad_lines(place: &str, text: &str, secrets: &[String]) -> Vec<String> {
    let bad = |line: &&str| line.contains("panicked at") || secrets.iter().any(|secret| line.contains(secret.as_str()));
    text.lines().filter(bad).take(3).map(|line| format!("X3: {place} has {line:.300}")).collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_panics_and_secrets_are_found_wherever_they_are() {
        let secrets = ["canary".to_owned()];
        let text = "all is well\nthread 'a' panicked at src/x.rs\na token: canary-1\n";
        assert_eq!(bad_lines("the log", text, &secrets).len(), 2);
        assert!(bad_lines("the log", "all is well\n", &secrets).is_empty());
    }
}
