//! The service under test: in this process on free ports, or as the real program, which can be killed.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ensemble_chassis::{Clock, Listeners, Running, Service, Vars, start};
use tokio::process::{Child, Command};

use crate::wait::eventually;

/// Starts a service in this process on free ports. Later variables override earlier ones of the same name.
pub async fn start_service<S: Service>(vars: impl IntoIterator<Item = (String, String)>) -> Running {
    start_service_at::<S>(vars, Clock::system()).await
}

/// The same, with a clock that the test controls.
pub async fn start_service_at<S: Service>(vars: impl IntoIterator<Item = (String, String)>, clock: Clock) -> Running {
    let listeners = Listeners::loopback().unwrap_or_else(|error| panic!("no free ports: {error}"));
    // No load balancer sends requests to a test's service, so nothing waits for one.
    let vars = [("DRAIN_DELAY_MS".to_owned(), "0".to_owned())].into_iter().chain(vars);
    let started = start::<S>(Vars::from_pairs(vars), listeners, clock).await;
    started.unwrap_or_else(|error| panic!("{} does not start: {error:#}", S::NAME))
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
        let mut vars: Vec<_> = vars.into_iter().collect();
        vars.push(("PUBLIC_LISTEN".to_owned(), public.clone()));
        vars.push(("INTERNAL_LISTEN".to_owned(), internal.clone()));
        let path = path.as_ref().to_owned();
        let child = spawn(&path, &vars);
        let program = Self {
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

    async fn ready(&self) {
        let api = crate::Api::new(&self.internal_url);
        eventually(Duration::from_secs(60), async || {
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

/// A host and a port of this machine that no program has now.
pub fn free_address() -> String {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.unwrap_or_else(|error| panic!("no free port: {error}")).to_string()
}
