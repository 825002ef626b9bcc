//! The services under load: release builds as separate processes on PostgreSQL, as in a deployment.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::started::is_interrupted;

/// Memory that no other process shares, in [`memory_mib`].
pub(crate) const ANONYMOUS: &str = "RssAnon:";

/// The command line options.
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// The figures of the release before, to be shown next to those of now.
    pub(crate) before: Option<PathBuf>,
    /// Where the figures are written.
    pub(crate) write: Option<PathBuf>,
    /// Names of rows; none are all.
    pub(crate) only: Vec<String>,
}

impl Options {
    /// `ensemble-bench [--rounds N] [--seconds N] [--before FILE] [--write FILE] [row …]`
    pub(crate) fn from_args() -> Result<Self> {
        let round = Duration::from_secs(4);
        let mut options = Self { rounds: 5, round, before: None, write: None, only: Vec::new() };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut next = || args.next().with_context(|| format!("{arg} needs a value"));
            let number = |text: String| text.parse::<u64>().with_context(|| format!("{arg} needs a number"));
            match arg.as_str() {
                "--rounds" => options.rounds = usize::try_from(number(next()?)?)?.max(1),
                "--seconds" => options.round = Duration::from_secs(number(next()?)?.max(1)),
                "--before" => options.before = Some(next()?.into()),
                "--write" => options.write = Some(next()?.into()),
                flag if flag.starts_with('-') => {
                    bail!("unknown flag {flag}; use --rounds, --seconds, --before, --write or names of rows")
                }
                row => options.only.push(row.to_owned()),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row)
    }
}

/// The PostgreSQL server, and what is needed to start services.
pub(crate) struct Machine {
    /// `postgres://…/postgres` of the running server.
    pub(crate) admin_url: String,
    /// The baseline for database rows.
    pub(crate) pgbench: PathBuf,
    release: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) scratch: tempfile::TempDir,
    /// The key file that all services of this run share.
    key_file: PathBuf,
}

/// A running service; killed when dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) public: String,
    pub(crate) internal: String,
    pub(crate) ready_after: Duration,
}

impl Machine {
    pub(crate) fn start(_: &Options) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "set by with-postgres, which starts the server for us")]
        let admin_url = std::env::var("TEST_DATABASE_URL").context("TEST_DATABASE_URL is not set: run `make bench`")?;
        let release = std::env::current_exe()?.parent().context("no folder")?.to_owned();
        let scratch = tempfile::tempdir()?;
        let key_file = scratch.path().join("key-encryption-key");
        Ok(Self {
            admin_url,
            pgbench: ensemble_testkit::postgres::program("pgbench")?,
            release,
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            scratch,
            key_file,
        })
    }

    /// Creates an empty database and returns its URL.
    pub(crate) fn database(&self, name: &str) -> Result<String> {
        self.sql(&self.admin_url, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?;
        self.sql(&self.admin_url, &format!("CREATE DATABASE {name}"))?;
        let (before, query) =
            self.admin_url.split_once('?').map_or((self.admin_url.as_str(), None), |(b, q)| (b, Some(q)));
        let base = before.rsplit_once('/').context("the database address has no path")?.0;
        Ok(query.map_or_else(|| format!("{base}/{name}"), |query| format!("{base}/{name}?{query}")))
    }

    /// The path of a release program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.release.join(name)
    }

    /// Runs statements that return nothing.
    pub(crate) fn sql(&self, url: &str, sql: &str) -> Result<()> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            let driver = tokio::spawn(connection);
            let done = client.batch_execute(sql).await.with_context(|| format!("running {sql:.120}"));
            drop(client);
            driver.await??;
            done
        })
    }

    /// Every row of a query whose columns are text.
    pub(crate) fn rows(&self, url: &str, sql: &str) -> Result<Vec<Vec<String>>> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            let driver = tokio::spawn(connection);
            let found = client.query(sql, &[]).await.with_context(|| format!("running {sql:.120}"))?;
            drop(client);
            driver.await??;
            found.iter().map(|row| (0..row.len()).map(|at| Ok(row.try_get::<_, String>(at)?)).collect()).collect()
        })
    }

    /// Starts the release build of a service and waits until it is ready.
    pub(crate) fn service(&self, name: &str, vars: &[(&str, &str)]) -> Result<Service> {
        self.service_on(free_port()?, name, vars)
    }

    /// The same on a given public port.
    pub(crate) fn service_on(&self, public: u16, name: &str, vars: &[(&str, &str)]) -> Result<Service> {
        ensure!(!is_interrupted(), "interrupted");
        let internal = free_port()?;
        let log = std::fs::File::create(self.scratch.path().join(format!("{name}-{public}.log")))?;
        let started = Instant::now();
        let child = Command::new(self.release.join(format!("ensemble-{name}")))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("PUBLIC_LISTEN", format!("127.0.0.1:{public}"))
            .env("INTERNAL_LISTEN", format!("127.0.0.1:{internal}"))
            .env("INTERNAL_TOKEN", "bench-internal-token")
            .env("KEY_ENCRYPTION_KEY_FILE", self.key_file())
            .env("RUST_LOG", "warn")
            .envs(vars.iter().copied())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .with_context(|| format!("ensemble-{name} does not start; build it with `cargo build --release`"))?;
        let mut service = Service {
            child,
            public: format!("http://127.0.0.1:{public}"),
            internal: format!("http://127.0.0.1:{internal}"),
            ready_after: Duration::ZERO,
        };
        service.wait_ready(self, started)?;
        Ok(service)
    }

    fn key_file(&self) -> &Path {
        if !self.key_file.exists() {
            use std::os::unix::fs::PermissionsExt;
            // 32 bytes that differ in each run and stay in the folder, which is deleted.
            let bytes: Vec<u8> =
                ensemble_types::ids::TokenId::generate().to_string().into_bytes().into_iter().take(32).collect();
            let written = std::fs::write(&self.key_file, bytes)
                .and_then(|()| std::fs::set_permissions(&self.key_file, std::fs::Permissions::from_mode(0o400)));
            if let Err(error) = written {
                eprintln!("{}: {error}", self.key_file.display());
            }
        }
        &self.key_file
    }
}

impl Service {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in MiB (`VmRSS` of proc(5)).
    pub(crate) fn resident_mib(&self) -> Result<f64> {
        resident_mib(self.pid())
    }

    fn wait_ready(&mut self, machine: &Machine, started: Instant) -> Result<()> {
        let url = format!("{}/readyz", self.internal);
        machine.runtime.block_on(async {
            let http = reqwest::Client::builder().no_proxy().build()?;
            // The time to readiness is a figure of its own, so it is sampled more often than `poll` does.
            let mut sample = tokio::time::interval(Duration::from_millis(2));
            while started.elapsed() < Duration::from_secs(20) {
                sample.tick().await;
                if let Ok(answer) = http.get(&url).timeout(Duration::from_secs(1)).send().await
                    && answer.status().is_success()
                {
                    self.ready_after = started.elapsed();
                    return Ok(());
                }
                if let Some(status) = self.child.try_wait()? {
                    bail!("the service exited with {status}; its log is in {}", machine.scratch.path().display());
                }
            }
            bail!("not ready after 20 s; its log is in {}", machine.scratch.path().display())
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process in MiB (`VmRSS` of proc(5)).
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// A size in the status of a process, in MiB (proc(5)).
pub(crate) fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
