//! A running orchestrator with its database and peers, an account with a client, and machines that request leases.

use std::time::Duration;

use ensemble_chassis::{Clock, Running};
use ensemble_orchestrator::Orchestrator;
use ensemble_rpc::orchestrator::{
    EndMachineLeasesRequest, EndMachineLeasesResponse, MachineLeases, MachineLeasesClient,
};
use ensemble_rpc::{Channel, Peer};
use ensemble_testkit::peers::INTERNAL_TOKEN;
pub(crate) use ensemble_testkit::sql::execute;
use ensemble_testkit::{Answer, Api, Backend, Peers, SOON, TestDatabase, eventually, sql, start_service};
use ensemble_types::ids::{MachineId, UserId};
use serde_json::{Value, json};

pub(crate) const RUNS: &str = "/v1/orchestrator/runs";
pub(crate) const LEASES: &str = "/v1/orchestrator/leases";

pub(crate) struct Fixture {
    pub(crate) peers: Peers,
    /// The URL of its database.
    pub(crate) url: String,
    _database: Option<TestDatabase>,
    /// `None` while the service is stopped.
    pub(crate) running: Option<Running>,
    pub(crate) user: UserId,
    pub(crate) api: Api,
}

/// Only notifications tell a service of changes.
pub(crate) const NO_SWEEP: [(&str, &str); 1] = [("ORCHESTRATOR_SWEEP_MS", "86400000")];

/// A machine of the account.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) id: MachineId,
    pub(crate) api: Api,
}

impl Fixture {
    pub(crate) async fn new(on: Backend) -> Self {
        Self::with(on, &[]).await
    }

    pub(crate) async fn with(on: Backend, vars: &[(&str, &str)]) -> Self {
        let database = TestDatabase::new(on, "orchestrator", ensemble_orchestrator::migrations()).await;
        let url = database.url.clone();
        Self { _database: Some(database), ..Self::at(url, vars).await }
    }

    /// A service on a database that the test created.
    pub(crate) async fn at(url: String, vars: &[(&str, &str)]) -> Self {
        let peers = Peers::start().await;
        let service = start_service::<Orchestrator>(variables(&peers, &url, vars)).await;
        let user = peers.new_user();
        let api = Api::new(&service.public_url()).with_token(&peers.issuer().user(user));
        Self { peers, url, _database: None, running: Some(service), user, api }
    }

    pub(crate) fn service(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        sql::closed(&self.url).await;
    }

    /// Starts the service again on the same database and a new port.
    pub(crate) async fn start(&mut self, vars: &[(&str, &str)]) {
        let service = start_service::<Orchestrator>(variables(&self.peers, &self.url, vars)).await;
        self.api = self.api.at(&service.public_url());
        self.running = Some(service);
    }

    /// Another replica on the same database.
    pub(crate) async fn replica(&self) -> Running {
        start_service::<Orchestrator>(variables(&self.peers, &self.url, &[])).await
    }

    /// The same runner, connected to the service after a restart.
    pub(crate) fn reconnect(&self, runner: &Runner) -> Runner {
        Runner { id: runner.id.clone(), api: runner.api.at(&self.service().public_url()) }
    }

    /// The time of this machine and its test databases, in microseconds since 1970.
    pub(crate) async fn now(&self) -> i64 {
        Clock::system().now().micros()
    }

    /// Calls the service as machine-registry does when a machine is deleted.
    pub(crate) async fn delete_machine(&self, runner: &Runner, deleted_at: i64) -> EndMachineLeasesResponse {
        let peer = Peer { url: self.service().internal_url(), deadline: SOON };
        let channel = Channel::with(ensemble_chassis::http_client().unwrap(), INTERNAL_TOKEN.to_owned().into(), &peer);
        let request =
            EndMachineLeasesRequest { user_id: self.user.to_string(), machine_id: runner.id.to_string(), deleted_at };
        MachineLeasesClient::new(channel).end(request).await.expect("the call arrives")
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let response = Api::new(&self.service().internal_url()).get("/metrics").await.text;
        let line = response.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()).expect("the metric exists");
        value.parse().expect("a number")
    }

    /// A client of another account.
    pub(crate) fn other_account(&self) -> Api {
        self.api.with_token(&self.peers.issuer().user(self.peers.new_user()))
    }

    pub(crate) fn runner(&self) -> Runner {
        self.runner_of(self.user)
    }

    pub(crate) fn runner_of(&self, owner: UserId) -> Runner {
        let id = self.peers.new_machine(owner);
        let api = self.api.with_token(&self.peers.issuer().machine(owner, &id));
        Runner { id, api }
    }

    /// Submits valid tasks.
    #[track_caller]
    pub(crate) fn submit(&self, tasks: Value) -> impl Future<Output = Value> {
        self.submit_run(json!({ "tasks": tasks }))
    }

    #[track_caller]
    pub(crate) fn submit_run(&self, run: Value) -> impl Future<Output = Value> {
        let api = self.api.clone();
        async move { api.post(RUNS, &run).await.expect(201) }
    }

    pub(crate) async fn run(&self, run: &Value) -> Value {
        self.api.get(&path(run, "")).await.expect(200)
    }

    /// Waits until this many requests are open at the service, for requests that wait for a change.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        eventually(SOON, async || self.service().in_flight() == count).await;
    }

    /// Waits until the run has ended.
    pub(crate) async fn wait_for_end(&self, run: &Value) -> Value {
        let pended = self.api.post(&path(run, "/pend"), &json!({ "waitFor": "terminal", "timeoutMs": 100_000 })).await;
        let pended = pended.expect(200);
        assert_eq!(pended["terminal"], true, "{pended}");
        self.run(run).await
    }
}

/// The variables of a service on this database.
pub(crate) fn variables(peers: &Peers, url: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut vars = peers.vars();
    vars.push(("DATABASE_URL".to_owned(), url.to_owned()));
    vars.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    vars
}

/// Runs a query for one number on the database.
pub(crate) async fn number(fixture: &Fixture, sql: &str) -> i64 {
    sql::number(&fixture.url, sql).await
}

pub(crate) fn path(run: &Value, rest: &str) -> String {
    format!("{RUNS}/{}{rest}", run["id"].as_str().expect("a run has an id"))
}

pub(crate) fn task(prompt: &str) -> Value {
    json!({ "prompt": prompt, "provider": "claude" })
}

pub(crate) fn statuses(run: &Value) -> Vec<&str> {
    run["tasks"].as_array().expect("tasks").iter().map(|task| task["status"].as_str().expect("a status")).collect()
}

impl Runner {
    /// Requests leases without waiting.
    pub(crate) async fn lease(&self, capacity: u32) -> Vec<Value> {
        self.wait(capacity, Duration::ZERO).await
    }

    /// Requests leases and waits for them.
    pub(crate) async fn wait(&self, capacity: u32, timeout: Duration) -> Vec<Value> {
        let body = json!({ "machineId": self.id, "providers": ["claude", "codex", "gemini"], "capacity": capacity,
            "waitMs": u64::try_from(timeout.as_millis()).expect("short") });
        let answer = self.api.post(LEASES, &body).await.expect(200);
        answer["leases"].as_array().expect("leases").clone()
    }

    /// Waits for one lease.
    pub(crate) async fn lease_one(&self) -> Value {
        let mut leases = self.wait(1, SOON).await;
        assert_eq!(leases.len(), 1, "no lease was granted");
        leases.remove(0)
    }

    pub(crate) async fn report(&self, lease: &Value, what: &str, mut body: Value) -> Answer {
        body["fence"] = lease["fence"].clone();
        self.api.post(&format!("{LEASES}/{}/{what}", lease["id"].as_str().expect("a lease has an id")), &body).await
    }

    pub(crate) async fn heartbeat(&self, lease: &Value) -> Answer {
        self.report(lease, "heartbeat", json!({})).await
    }

    pub(crate) async fn output(&self, lease: &Value, offset: usize, data: &str) -> Answer {
        self.report(lease, "output", json!({ "offset": offset, "data": data })).await
    }

    pub(crate) async fn finish(&self, lease: &Value, status: &str) -> Answer {
        self.report(lease, "finish", json!({ "status": status })).await
    }

    pub(crate) async fn complete(&self, lease: &Value) {
        self.finish(lease, "completed").await.expect(200);
    }
}
