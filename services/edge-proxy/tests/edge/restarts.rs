//! A service with two replicas is restarted, one replica at a time, while requests come: none of them fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::HttpResponse;
use ensemble_chassis::auth::FixedKeys;
use ensemble_chassis::{
    Access, Clock, HandlerResult, KeySet, KeySource, Listeners, Routes, Running, Service, ServiceContext, StartError,
    State, Vars, Worker, get, post, start,
};
use ensemble_testkit::in_time;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Edge;
use crate::raw::{Raw, SOON};
use crate::streams::eventually;
use crate::stub::Stub;

const GET: &str = "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n";
const POST: &str = "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 0\r\n\r\n";

/// Answers with its own address.
struct Replica(SocketAddr);

async fn address(replica: State<Replica>) -> HandlerResult<HttpResponse> {
    Ok(HttpResponse::Ok().body(replica.0.to_string()))
}

impl Service for Replica {
    const NAME: &'static str = "replica";
    const DEFAULT_PORT: u16 = 1;
    type Config = ();

    fn configure(_: &mut Vars) {}

    fn routes() -> Routes {
        Routes::new()
            .row(get("/v1/sessions").access(Access::Public).response_as(200, "text/plain", "A text.").handler(address))
            .row(post("/v1/sessions").access(Access::Public).response_as(200, "text/plain", "A text.").handler(address))
    }

    async fn build((): (), context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        Ok((Arc::new(Self(context.public_addr)), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::new(FixedKeys::new(KeySet::default()))
    }
}

async fn replica(listeners: Listeners) -> Running {
    let vars = Vars::from_pairs([("INTERNAL_TOKEN", "internal"), ("DRAIN_DELAY_MS", "1000"), ("WORKERS", "1")]);
    start::<Replica>(vars, listeners, Clock::system()).await.unwrap()
}

/// Requests through the edge from many clients at once, until the test ends them.
struct Load {
    clients: Vec<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
}

impl Load {
    fn on(edge: SocketAddr) -> Self {
        let (has_ended, answers): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let clients = (0..8).map(|_| tokio::spawn(ask(edge, Arc::clone(&has_ended), Arc::clone(&answers)))).collect();
        Self { clients, has_ended, answers }
    }

    async fn answers_more(&self) {
        let before = self.answers.load(Ordering::SeqCst);
        eventually(|| self.answers.load(Ordering::SeqCst) > before + 100).await;
    }

    async fn end(self) {
        self.has_ended.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.expect("every request succeeded");
        }
    }
}

async fn ask(edge: SocketAddr, has_ended: Arc<AtomicBool>, answers: Arc<AtomicUsize>) {
    let mut raw = Raw::connect(edge).await;
    while !has_ended.load(Ordering::SeqCst) {
        for request in [GET, POST] {
            raw.send(request).await;
            let answer = raw.answer().await;
            assert_eq!(answer.status, 200, "{request}: {}", answer.text());
            answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_replicas_restart_one_after_the_other() {
    in_time(Duration::from_secs(10), restart_one_after_the_other).await;
}

async fn restart_one_after_the_other() {
    let stub = Stub::echo().await;
    let replicas = [replica(Listeners::loopback().unwrap()).await, replica(Listeners::loopback().unwrap()).await];
    let urls = replicas.each_ref().map(Running::public_url).join(",");
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &urls), ("LIMIT_ADDRESS", "0")]).await;
    let load = Load::on(edge.running.public_addr);
    let mut restarted = Vec::new();
    for old in replicas {
        let address = old.public_addr;
        load.answers_more().await;
        assert!(old.stop().await, "nothing had to be cut off");
        load.answers_more().await;
        let listeners = Listeners::bind(address, ([127, 0, 0, 1], 0).into()).unwrap();
        restarted.push(replica(listeners).await);
        timeout(SOON, answered_by(address, &edge)).await.expect("the new replica gets requests");
    }
    load.end().await;
    for replica in restarted {
        assert!(replica.stop().await);
    }
}

async fn answered_by(address: SocketAddr, edge: &Edge) {
    while edge.get("/v1/sessions").await.text() != address.to_string() {}
}
