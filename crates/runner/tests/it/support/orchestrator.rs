//! A stand-in for the orchestrator: it grants the leases of the test and records the calls, with the interface's rules
//! for fences and offsets.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use ensemble_testkit::{eventually, eventually_some};
use ensemble_types::changes::{LeaseDiff, LeaseWaitsFor, OrderResult};
use ensemble_types::ids::{LeaseId, RunId, TaskId};
use ensemble_types::leases::{
    FinishStatus, Lease, LeaseFinish, LeaseHeartbeat, LeaseOutput, LeaseRequest, Order, OrderKind,
};
use ensemble_types::problem::{Code, PROBLEM_JSON, Problem};
use ensemble_types::refs::Ref;
use ensemble_types::runs::{Isolation, Provider};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The calls about one lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) heartbeats: Vec<Instant>,
    /// The first 4 MiB.
    pub(crate) output: String,
    pub(crate) output_bytes: u64,
    pub(crate) finishes: Vec<LeaseFinish>,
    /// The `traceparent` of each call about it.
    pub(crate) traces: Vec<Option<String>>,
    /// The provider's session, as a heartbeat reported it.
    pub(crate) session: Option<String>,
    /// A heartbeat was answered with a cancellation.
    cancel_received: bool,
    /// What the last heartbeat said that the attempt waits for, and whether any said so.
    pub(crate) waits: Option<LeaseWaitsFor>,
    pub(crate) has_waited: bool,
    /// The parts of the diff that came before the report.
    pub(crate) diff: String,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Lease>,
    recorded: HashMap<LeaseId, Recorded>,
    cancelled: HashSet<LeaseId>,
    /// Open orders, and the results of those that were carried out.
    orders: Vec<Order>,
    results: HashMap<String, OrderResult>,
    lost: HashSet<LeaseId>,
    /// Every call is answered with this error.
    fails_with: Option<Code>,
    forgets_output: bool,
    refuses_diffs: bool,
    calls: u64,
    machine_beats: Vec<Value>,
    lease_requests: Vec<LeaseRequest>,
}

/// Stops when it is dropped.
pub(crate) struct Orchestrator {
    pub(crate) url: String,
    shared: Shared,
    handle: ServerHandle,
}

#[derive(Clone, Default)]
struct Shared {
    state: Arc<Mutex<State>>,
    ready: Arc<Notify>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Orchestrator {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared::default();
        let data = shared.clone();
        let app = move || {
            App::new()
                .app_data(web::Data::new(data.clone()))
                .app_data(web::PayloadConfig::new(16 << 20))
                .route("/v1/orchestrator/leases", web::post().to(lease))
                .route("/v1/orchestrator/leases/{id}/heartbeat", web::post().to(heartbeat))
                .route("/v1/orchestrator/leases/{id}/output", web::post().to(output))
                .route("/v1/orchestrator/leases/{id}/diff", web::post().to(diff))
                .route("/v1/orchestrator/leases/{id}/finish", web::post().to(finish))
                .route("/v1/orchestrator/orders/{id}/result", web::post().to(order_result))
                .route("/v1/machines/{id}", web::patch().to(machine))
        };
        let server =
            HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(0).listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, shared, handle }
    }

    /// Queues a task and returns the id of its lease.
    pub(crate) fn enqueue(&self, lease: Lease) -> LeaseId {
        let id = lease.id;
        self.shared.lock().queue.push_back(lease);
        self.shared.ready.notify_waiters();
        id
    }

    pub(crate) fn cancel(&self, lease: LeaseId) {
        self.shared.lock().cancelled.insert(lease);
        self.shared.ready.notify_waiters();
    }

    /// Gives an order about a task, and waits for its result.
    pub(crate) async fn order(&self, kind: OrderKind, run_id: RunId, task_id: TaskId) -> OrderResult {
        let id = LeaseId::generate().to_string();
        let order = Order { id: id.clone(), kind, run_id, task_id, lease_id: None, fence: None, signed: None };
        self.shared.lock().orders.push(order);
        self.shared.ready.notify_waiters();
        eventually_some(super::SOON, async || self.shared.lock().results.get(&id).cloned()).await
    }

    /// Acts as if another runner had received the task.
    pub(crate) fn lose(&self, lease: LeaseId) {
        self.shared.lock().lost.insert(lease);
    }

    pub(crate) fn fail_with(&self, code: Option<Code>) {
        self.shared.lock().fails_with = code;
    }

    /// Discards the stored output of every attempt, once.
    pub(crate) fn forget_output(&self) {
        self.shared.lock().forgets_output = true;
    }

    /// Takes no part of any diff.
    pub(crate) fn refuse_diffs(&self) {
        self.shared.lock().refuses_diffs = true;
    }

    pub(crate) fn recorded(&self, lease: LeaseId) -> Recorded {
        self.shared.lock().recorded.get(&lease).cloned().unwrap_or_default()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.shared.lock().calls
    }

    pub(crate) fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }

    pub(crate) fn machine_beats(&self) -> Vec<Value> {
        self.shared.lock().machine_beats.clone()
    }

    pub(crate) fn lease_requests(&self) -> Vec<LeaseRequest> {
        self.shared.lock().lease_requests.clone()
    }

    pub(crate) async fn finished(&self, lease: LeaseId, within: Duration) -> LeaseFinish {
        eventually_some(within, async || self.recorded(lease).finishes.first().cloned()).await
    }

    pub(crate) async fn wait_for_heartbeat(&self, lease: LeaseId) {
        eventually_some(super::SOON, async || self.recorded(lease).heartbeats.first().copied()).await;
    }

    /// Waits until the output contains this text.
    pub(crate) async fn wait_for_output(&self, lease: LeaseId, text: &str) {
        eventually(super::SOON, async || self.recorded(lease).output.contains(text)).await;
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

/// A task for `claude` without a working directory.
pub(crate) fn task(prompt: impl Into<String>) -> Lease {
    Lease {
        id: LeaseId::generate(),
        fence: 1,
        run_id: RunId::generate(),
        task_id: TaskId::generate(),
        attempt: 1,
        provider: Provider::Claude,
        model: None,
        prompt: prompt.into(),
        sealed: None,
        session: None,
        signed: None,
        signed_message: None,
        outputs: Default::default(),
        working_directory: None,
        timeout_ms: 120_000,
        permission: None,
        allowed_tools: Vec::new(),
        isolation: Isolation::None,
        base: None,
        base_task: None,
        resume: None,
        follow_up: false,
        max_cost_usd: None,
        resume_cost_usd: None,
        traceparent: None,
        expires_at: Timestamp::from_unix_seconds(4_000_000_000),
    }
}

/// The error code of a report, or an empty text.
pub(crate) fn code(finish: &LeaseFinish) -> &str {
    finish.error.as_ref().map_or("", |error| &error.code)
}

pub(crate) fn completed(finish: &LeaseFinish) {
    assert_eq!(finish.status, FinishStatus::Completed, "{finish:?}");
}

fn refuse(problem: Problem) -> HttpResponse {
    let status = actix_web::http::StatusCode::from_u16(problem.status).unwrap();
    HttpResponse::build(status).content_type(PROBLEM_JSON).body(serde_json::to_string(&problem).unwrap())
}

type Data = web::Data<Shared>;

/// Counts the call, and returns the error that the test wants, if any.
fn failing(state: &mut State) -> Option<HttpResponse> {
    state.calls += 1;
    state.fails_with.map(|code| refuse(Problem { retry_after: None, ..Problem::new(code, "as the test wants it") }))
}

async fn lease(shared: Data, body: web::Json<LeaseRequest>) -> HttpResponse {
    let wait = Duration::from_millis(body.wait_ms);
    let deadline = tokio::time::Instant::now() + wait;
    {
        let mut state = shared.lock();
        state.lease_requests.push(body.clone());
        if let Some(failure) = failing(&mut state) {
            return failure;
        }
    }
    loop {
        let ready = shared.ready.notified();
        {
            let mut state = shared.lock();
            let mut leases = Vec::new();
            let wanted = usize::try_from(body.capacity).unwrap();
            while leases.len() < wanted && state.fails_with.is_none() {
                // An unknown provider goes to any machine, as a server could do.
                let is_wanted = |of: &Provider| body.providers.contains(of) || matches!(of, Provider::Other(_));
                let next = state.queue.iter().position(|lease| is_wanted(&lease.provider));
                let Some(lease) = next.and_then(|next| state.queue.remove(next)) else { break };
                state.recorded.entry(lease.id).or_default();
                leases.push(lease);
            }
            // An order is repeated until a heartbeat has received it.
            let State { cancelled, recorded, .. } = &*state;
            let orders: Vec<_> = cancelled
                .iter()
                .filter(|id| {
                    recorded.get(id).is_some_and(|recorded| recorded.finishes.is_empty() && !recorded.cancel_received)
                })
                .map(|id| json!({ "id": id, "kind": "cancel", "runId": id, "taskId": id, "leaseId": id, "fence": 1 }))
                .collect();
            let taken: Vec<&str> = body.taken_orders.iter().map(|id| &**id).collect();
            let open = state.orders.iter().filter(|order| !state.results.contains_key(&order.id));
            let given = open.filter(|order| !taken.contains(&order.id.as_str())).map(|order| json!(order));
            let orders: Vec<_> = orders.into_iter().chain(given).collect();
            if !leases.is_empty() || !orders.is_empty() || tokio::time::Instant::now() >= deadline {
                return HttpResponse::Ok().json(json!({ "leases": leases, "orders": orders }));
            }
        }
        let _ = tokio::time::timeout_at(deadline, ready).await;
    }
}

/// Runs `answer` with the lease's record, unless the call fails.
fn held(
    shared: &Shared,
    http: &HttpRequest,
    fence: i64,
    with: impl FnOnce(&mut State, LeaseId) -> HttpResponse,
) -> HttpResponse {
    let mut state = shared.lock();
    if let Some(failure) = failing(&mut state) {
        return failure;
    }
    let id = http.match_info().get("id").and_then(|id| id.parse::<LeaseId>().ok());
    let Some(id) = id else { return refuse(Problem::not_found()) };
    if state.lost.contains(&id) || fence != 1 {
        return refuse(Problem::new(Code::LeaseLost, "another attempt was granted"));
    }
    let Some(recorded) = state.recorded.get_mut(&id) else { return refuse(Problem::not_found()) };
    let trace = http.headers().get("traceparent").map(|value| value.to_str().unwrap().to_owned());
    recorded.traces.push(trace);
    with(&mut state, id)
}

async fn heartbeat(shared: Data, http: HttpRequest, body: web::Json<LeaseHeartbeat>) -> HttpResponse {
    held(&shared, &http, body.fence, |state, id| {
        state.recorded.get_mut(&id).unwrap().heartbeats.push(Instant::now());
        let cancel = state.cancelled.contains(&id);
        let recorded = state.recorded.get_mut(&id).unwrap();
        recorded.cancel_received |= cancel;
        recorded.waits = body.waiting_for;
        recorded.has_waited |= body.waiting_for.is_some();
        if let Some(session) = &body.provider_session_id {
            recorded.session = Some(session.to_string());
        }
        HttpResponse::Ok().json(json!({"expiresAt": "2030-01-01T00:00:00.000Z", "cancelRequested": cancel}))
    })
}

async fn output(shared: Data, http: HttpRequest, body: web::Json<LeaseOutput>) -> HttpResponse {
    held(&shared, &http, body.fence, |state, id| {
        let forgets = std::mem::take(&mut state.forgets_output);
        let recorded = state.recorded.get_mut(&id).unwrap();
        if forgets {
            recorded.output.clear();
            recorded.output_bytes = 0;
        }
        if body.offset > recorded.output_bytes {
            let gap = Problem::new(Code::Conflict, "a gap").with("expectedOffset", recorded.output_bytes);
            return refuse(gap);
        }
        let known = usize::try_from(recorded.output_bytes - body.offset).unwrap();
        let new = body.data.get(known..).unwrap_or_default();
        recorded.output_bytes += u64::try_from(new.len()).unwrap();
        if recorded.output.len() < 4 << 20 {
            recorded.output.push_str(new);
        }
        HttpResponse::Ok().json(json!({"success": true}))
    })
}

async fn diff(shared: Data, http: HttpRequest, body: web::Json<LeaseDiff>) -> HttpResponse {
    held(&shared, &http, body.fence, |state, id| {
        if state.refuses_diffs {
            return refuse(Problem::new(Code::PayloadTooLarge, "no diffs here"));
        }
        let recorded = state.recorded.get_mut(&id).unwrap();
        assert!(recorded.finishes.is_empty(), "the diff comes before the report");
        recorded.diff.push_str(&body.data);
        HttpResponse::Ok().json(json!({"truncated": false}))
    })
}

async fn order_result(shared: Data, id: web::Path<String>, body: web::Json<OrderResult>) -> HttpResponse {
    shared.lock().results.insert(id.into_inner(), body.into_inner());
    HttpResponse::Ok().json(json!({"state": "applied"}))
}

async fn finish(shared: Data, http: HttpRequest, body: web::Json<LeaseFinish>) -> HttpResponse {
    held(&shared, &http, body.fence, |state, id| {
        state.recorded.get_mut(&id).unwrap().finishes.push(body.into_inner());
        HttpResponse::Ok().json(json!({"success": true}))
    })
}

async fn machine(shared: Data, id: web::Path<String>, body: web::Json<Value>) -> HttpResponse {
    let mut state = shared.lock();
    if let Some(failure) = failing(&mut state) {
        return failure;
    }
    state.machine_beats.push(body["activity"].clone());
    HttpResponse::Ok().json(json!({
        "id": *id, "ref": Ref::of(&*id), "metadata": "m", "metadataVersion": 1, "encryptionKey": "k", "daemonState": null,
        "daemonStateVersion": 1, "activity": body["activity"], "online": true,
        "lastActiveAt": "2030-01-01T00:00:00.000Z", "createdAt": "2030-01-01T00:00:00.000Z",
        "updatedAt": "2030-01-01T00:00:00.000Z",
    }))
}
