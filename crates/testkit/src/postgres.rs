//! Private PostgreSQL clusters: started as a non-root user in a temporary folder, removed when their owner ends.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, User};

use crate::{SOON, free_port};

/// The variable that names a running server for the tests.
pub const TEST_DATABASE_URL: &str = "TEST_DATABASE_URL";

/// Stops the server when the pipe on standard input is closed, which also happens when the owner is killed. Removes the
/// folder unless the last argument says otherwise.
const GUARD: &str = r#"
dir=$1; keep=$2; shift 2
"$@" & server=$!
read -r _
# A signal that comes before the server has set itself up is lost, so it is sent until it has worked.
while kill -INT "$server" 2>/dev/null; do sleep 0.1; done
wait "$server" 2>/dev/null
[ -e "$keep" ] || rm -rf "$dir"
"#;

/// Whether commits are flushed to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As in production. For tests that kill the server, and for measurements.
    Full,
    /// Faster. For all other tests.
    None,
}

/// What memory must have free to hold the databases of the tests.
const MEMORY_NEEDED: u64 = 6 << 30;

/// Where a server's files go. Those that need not last go into memory where there is enough: a busy disk can stop a server
/// for seconds, which callers rightly see as a database that does not answer.
fn parent(durability: Durability) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let free = statvfs(&memory).map_or(0, |of| of.blocks_available() * of.fragment_size());
    if durability == Durability::None && free >= MEMORY_NEEDED { memory } else { std::env::temp_dir() }
}

/// A private server.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    port: u16,
    durability: Durability,
    settings: Vec<String>,
    guard: Option<Child>,
}

impl Cluster {
    pub fn start(durability: Durability) -> Result<Self> {
        Self::start_with(durability, &[])
    }

    /// Starts a server with more settings, for example `shared_buffers=1GB`.
    pub fn start_with(durability: Durability, settings: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ensemble-pg-").tempdir_in(parent(durability))?.keep();
        let made = Self {
            dir,
            port: free_port(),
            durability,
            settings: settings.iter().map(|s| (*s).to_owned()).collect(),
            guard: None,
        };
        made.init().and_then(|mut cluster| cluster.up().map(|()| cluster))
    }

    /// The URL of one of its databases. `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file to which it writes its log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Starts it again on the same port after [`Cluster::kill`] or [`Cluster::stop`].
    pub fn up(&mut self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            let log_before = fs::metadata(self.log()).map_or(0, |log| usize::try_from(log.len()).unwrap_or(0));
            self.launch()?;
            while Instant::now() < deadline {
                if self.answers() {
                    return Ok(());
                }
                if self.refused(log_before) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.end_guard();
            if Instant::now() >= deadline {
                bail!("PostgreSQL did not start; its log:\n{}", self.log_tail());
            }
            // After a kill the old server's children run on for a moment, and the new server is refused until they end.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends it like a crash: SIGKILL, without writing anything.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(pid) = self.pid() {
            kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        }
        self.end_guard();
        Ok(())
    }

    /// Sends a signal to the server and all its processes, for example SIGSTOP and SIGCONT.
    pub fn signal_all(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid() else { bail!("the server is not running") };
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
            let _ = kill(Pid::from_raw(child), signal);
        }
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Stops it in order ("fast shutdown").
    pub fn stop(&mut self) {
        self.end_guard();
    }

    fn init(self) -> Result<Self> {
        let owner = owner()?;
        if let Some((uid, gid)) = owner {
            chown(&self.dir, Some(uid), Some(gid))?;
        }
        fs::set_permissions(&self.dir, Permissions::from_mode(0o700))?;
        // While this file exists, the guard does not remove the folder.
        File::create(self.keep_file())?;
        let made = as_owner(Command::new(program("initdb")?), owner)
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(self.dir.join("data"))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .output()
            .context("initdb cannot be run")?;
        if !made.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(self)
    }

    fn launch(&mut self) -> Result<()> {
        self.end_guard();
        let mut command = as_owner(Command::new("/bin/sh"), owner()?);
        command.args(["-c", GUARD, "postgres-guard"]).arg(&self.dir).arg(self.keep_file());
        command.arg(program("postgres")?).arg("-D").arg(self.dir.join("data"));
        command.args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"]).arg(&self.dir);
        let mut settings = vec!["max_connections=400".to_owned(), "log_min_messages=fatal".to_owned()];
        if self.durability == Durability::None {
            settings.extend(["fsync=off", "full_page_writes=off"].map(str::to_owned));
        }
        for setting in settings.iter().chain(&self.settings) {
            command.arg("-c").arg(setting);
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        // Its own process group: Ctrl-C in a terminal reaches only the tests, and they stop the server.
        command.current_dir(&self.dir).process_group(0);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        self.guard = Some(command.spawn().context("PostgreSQL cannot be started")?);
        Ok(())
    }

    fn answers(&self) -> bool {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=1", self.port);
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return false };
        // Its own runtime on its own thread, because the caller may be inside a runtime.
        let connect =
            move || runtime.block_on(async { tokio_postgres::connect(&config, tokio_postgres::NoTls).await.is_ok() });
        std::thread::spawn(connect).join().unwrap_or(false)
    }

    /// Whether the log contains the reason why the server does not start. Its guard does not end with it.
    fn refused(&self, log_before: usize) -> bool {
        // A starting server also logs FATAL for early connections: "the database system is starting up".
        let fatal = |line: &str| line.contains("FATAL") && !line.contains("the database system is");
        fs::read_to_string(self.log()).is_ok_and(|log| log.get(log_before..).unwrap_or("").lines().any(fatal))
    }

    fn pid(&self) -> Option<i32> {
        fs::read_to_string(self.dir.join("data/postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }

    fn end_guard(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }

    fn keep_file(&self) -> PathBuf {
        self.dir.join("keep")
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(10)).copied().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.keep_file());
        self.end_guard();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The server that tests share: that of [`TEST_DATABASE_URL`], or one that this process starts and stops.
pub fn shared_url() -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "how `make test` passes its server to the tests")]
    if let Some(url) = std::env::var(TEST_DATABASE_URL).ok().filter(|url| !url.is_empty()) {
        return Ok(url);
    }
    static OWN: OnceLock<Result<Cluster, String>> = OnceLock::new();
    Ok(of_this_process(&OWN, &[])?.url("postgres"))
}

/// A server with more settings, which the first caller starts and which ends with this process.
pub(crate) fn of_this_process(
    server: &'static OnceLock<Result<Cluster, String>>,
    settings: &[&str],
) -> Result<&'static Cluster> {
    let started = server.get_or_init(|| {
        let cluster = Cluster::start_with(Durability::None, settings).map_err(|e| format!("{e:#}"))?;
        // Statics are not dropped. Because this file is gone, the guard cleans up when the process has ended.
        let _ = fs::remove_file(cluster.keep_file());
        Ok(cluster)
    });
    match started {
        Ok(cluster) => Ok(cluster),
        Err(why) => bail!(
            "these tests need PostgreSQL 15 or newer, and there is none: {why}\n\
             Install it (Debian: `apt-get install postgresql`), or name a running one in {TEST_DATABASE_URL}."
        ),
    }
}

/// A program of PostgreSQL: from PATH, or where Debian keeps it (the newest version).
pub fn program(name: &str) -> Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "PATH is where programs are found")]
    let path = std::env::var("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    on_path
        .or_else(|| newest_of_debian(name))
        .with_context(|| format!("`{name}` of PostgreSQL is neither on the PATH nor in /usr/lib/postgresql/*/bin"))
}

fn newest_of_debian(name: &str) -> Option<PathBuf> {
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path());
    let mut versions: Vec<(u32, PathBuf)> = folders.filter_map(|folder| Some((version(&folder)?, folder))).collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder.join("bin").join(name)).find(|file| file.is_file())
}

/// PostgreSQL refuses to run as root. In that case it runs as `postgres`, or as `nobody`.
fn owner() -> Result<Option<(u32, u32)>> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    bail!("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")
}

fn as_owner(mut command: Command, owner: Option<(u32, u32)>) -> Command {
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
    command
}
