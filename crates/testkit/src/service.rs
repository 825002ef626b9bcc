//! The service under test: in this process on free ports, or as the real program, which can be killed.

use std::path::Path;
use std::process::Stdio;

use ensemble_chassis::{Clock, Listeners, Running, Service, Vars, start};
use tokio::process::{Child, Command};

use crate::ports::free_address;
use crate::wait::{SOON, eventually};

/// What every service under test is given, unless its test says otherwise. No load balancer sends requests to it, so nothing
/// waits for one. What it waits for may come late, because the whole machine can stand still for half a minute.
const SETTINGS: [(&str, &str); 6] = [
    ("DRAIN_DELAY_MS", "0"),
    ("DATABASE_TIMEOUT_MS", "60000"),
    ("DATABASE_POOL_WAIT_MS", "60000"),
    ("APPEND_TIMEOUT_MS", "60000"),
    ("RPC_DEADLINE_MS", "60000"),
    ("BODY_TIMEOUT_MS", "60000"),
];

/// The limits of production, for tests in which the database goes away: no call waits for it for a minute.
pub const SHORT_WAITS: [(&str, &str); 3] =
    [("DATABASE_TIMEOUT_MS", "1750"), ("DATABASE_POOL_WAIT_MS", "500"), ("APPEND_TIMEOUT_MS", "1750")];

/// Starts a service in this process on free ports. Later variables override earlier ones of the same name.
pub async fn start_service<S: Service>(vars: impl IntoIterator<Item = (String, String)>) -> Running {
    start_service_at::<S>(vars, Clock::system()).await
}

/// The same, with a clock that the test controls.
pub async fn start_service_at<S: Service>(vars: impl IntoIterator<Item = (String, String)>, clock: Clock) -> Running {
    let listeners = Listeners::loopback().unwrap_or_else(|error| panic!("no free ports: {error}"));
    let started = start::<S>(Vars::from_pairs(with_settings(vars)), listeners, clock).await;
    started.unwrap_or_else(|error| panic!("{} does not start: {error:#}", S::NAME))
}

fn with_settings(vars: impl IntoIterator<Item = (String, String)>) -> impl Iterator<Item = (String, String)> {
    SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().chain(vars)
}

/// A service as a separate process. Killed when dropped.
pub struct Program {
    path: std::path::PathBuf,
    vars: Vec<(String, String)>,
    child: Child,
    pub public_url: String,
    pub internal_url: String,
}

impl Program {
    /// Runs the program of a service (`env!("CARGO_BIN_EXE_ensemble-…")`) and waits until it is ready.
    pub async fn start(path: impl AsRef<Path>, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::start_on(free_address(), path, vars).await
    }

    /// The same with this public address, as [`free_address`] gives one.
    pub async fn start_on(
        public: String,
        path: impl AsRef<Path>,
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let internal = free_address();
        let mut vars: Vec<_> = with_settings(vars).collect();
        vars.push(("PUBLIC_LISTEN".to_owned(), public.clone()));
        vars.push(("INTERNAL_LISTEN".to_owned(), internal.clone()));
        let path = path.as_ref().to_owned();
        let child = spawn(&path, &vars);
        let mut program = Self {
            path,
            vars,
            child,
            public_url: format!("http://{public}"),
            internal_url: format!("http://{internal}"),
        };
        program.ready().await;
        program
    }

    /// Sends SIGKILL and returns when the process has ended.
    pub async fn kill(&mut self) {
        let _ = self.child.kill().await;
    }

    /// Starts it again on the same ports.
    pub async fn restart(&mut self) {
        self.kill().await;
        self.child = spawn(&self.path, &self.vars);
        self.ready().await;
    }

    async fn ready(&mut self) {
        let api = crate::Api::new(&self.internal_url);
        eventually(SOON, async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} has ended: {status}", self.path.display());
            }
            matches!(crate::Api::try_send(api.request("GET", "/readyz")).await, Ok(answer) if answer.status == 200)
        })
        .await;
    }
}

fn spawn(path: &Path, vars: &[(String, String)]) -> Child {
    let mut command = Command::new(path);
    command.env_clear().envs(vars.iter().map(|(name, value)| (name, value))).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().unwrap_or_else(|error| panic!("{} cannot be run: {error}", path.display()))
}
