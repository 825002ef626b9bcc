//! Killed processes: every acknowledged message is stored, once, and `seq` has no gap.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::service::SHORT_WAITS;
use ensemble_testkit::{Api, Events, Program, SOON, eventually, on_both_databases, sql};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, messages};

const BINARY: &str = env!("CARGO_BIN_EXE_ensemble-session-store");

/// Appends until `stop` is set, and retries each message until it is acknowledged. Returns the acknowledged messages.
async fn write(api: Api, session: String, writer: usize, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) -> Vec<Value> {
    let mut acknowledged = Vec::new();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while !stop.load(Ordering::SeqCst) {
        let n = acknowledged.len();
        let body = json!({ "content": format!("{writer}-{n}"), "localId": format!("{writer}-{n}") });
        let begun = Instant::now();
        let message = loop {
            // Unpaced retries would keep the database from coming back.
            pace.tick().await;
            match Api::try_send(api.request("POST", &messages(&session)).json(&body)).await {
                Ok(answer) if matches!(answer.status, 200 | 201) => break answer.json(),
                Ok(answer) => drop(answer.problem(503, "UNAVAILABLE")),
                Err(_) => {}
            }
            assert!(begun.elapsed() < Duration::from_secs(180), "no answer for three minutes");
        };
        acknowledged.push(message);
        done.fetch_add(1, Ordering::SeqCst);
    }
    acknowledged
}

/// Checks that the history has every acknowledged message as it was acknowledged, and no gap.
async fn check(reader: &Client, session: &str, acknowledged: Vec<Value>) {
    let history = reader.history(session).await;
    let seqs: Vec<i64> = history.iter().map(|message| message["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as i64).collect::<Vec<_>>());
    let by_name: HashMap<&str, &Value> = history.iter().map(|m| (m["localId"].as_str().unwrap(), m)).collect();
    assert_eq!(by_name.len(), history.len(), "a message is stored twice");
    for message in &acknowledged {
        assert_eq!(by_name.get(message["localId"].as_str().unwrap()), Some(&message));
    }
}

on_both_databases! {
    async fn a_killed_service_keeps_acknowledged_messages(on: Backend) {
        let fixture = Fixture::start(on).await;
        // The service in this process created the schema. The program takes its place.
        let (peers, vars, database) = (fixture.peers.clone(), fixture.vars(&[]), fixture.database);
        let owner_id = peers.new_user();
        let token = peers.issuer().user(owner_id);
        let machine = peers.new_machine(owner_id);
        assert!(fixture.service.stop().await);
        sql::closed(&database.url).await;
        let mut program = Program::start(BINARY, vars).await;
        let owner = Client { id: owner_id, machine, api: Api::new(&program.public_url).with_token(&token) };
        let session = owner.session().await;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let writers: Vec<_> = (0..16)
            .map(|n| tokio::spawn(write(owner.api.clone(), session.clone(), n, Arc::clone(&stop), Arc::clone(&done))))
            .collect();
        let reader = tokio::spawn(follow(owner.clone(), session.clone(), Arc::clone(&stop)));
        for kill in 1..=4 {
            eventually(SOON, async || done.load(Ordering::SeqCst) >= kill * 60).await;
            program.restart().await;
        }
        eventually(SOON, async || done.load(Ordering::SeqCst) >= 300).await;
        stop.store(true, Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        check(&owner, &session, acknowledged).await;
        owner.append(&session, "the last one", "x").await;
        reader.await.unwrap();
        drop(database);
    }
}

/// Follows a session across interruptions. Each `seq` must arrive once, in order, up to the last message.
async fn follow(owner: Client, session: String, stop: Arc<AtomicBool>) {
    let mut seen = 0;
    loop {
        let path = format!("{}/stream?after={seen}", messages(&session));
        let Some(mut events) = Events::try_open(owner.api.request("GET", &path)).await else {
            tokio::task::yield_now().await;
            continue;
        };
        while let Ok(Some(event)) = events.next_within(Duration::from_secs(3)).await {
            if event.name != "message" {
                break;
            }
            seen += 1;
            assert_eq!(event.id.as_deref(), Some(seen.to_string().as_str()));
            if stop.load(Ordering::SeqCst) && event.data.contains("the last one") {
                return;
            }
        }
    }
}

#[test]
fn a_killed_database_keeps_acknowledged_messages() {
    let mut cluster = Cluster::start(Durability::Full).unwrap();
    ensemble_testkit::run(async move {
        let url = cluster.url("postgres");
        let vars = [&SHORT_WAITS[..], &[("DATABASE_URL", &url)]].concat();
        let fixture = Fixture::start_with(ensemble_testkit::Backend::Sqlite, &vars).await;
        let owner = fixture.client();
        let session = owner.session().await;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let writers: Vec<_> = (0..16)
            .map(|n| tokio::spawn(write(owner.api.clone(), session.clone(), n, Arc::clone(&stop), Arc::clone(&done))))
            .collect();
        let mut live = Events::open(owner.api.request("GET", &format!("{}/stream", messages(&session)))).await;
        for restart in 1..=3 {
            eventually(SOON, async || done.load(Ordering::SeqCst) >= restart * 80).await;
            cluster.kill().unwrap();
            // Connections that were open serve on until they notice that the server is gone.
            let is_refused = async || owner.api.get("/v1/sessions").await.status == 503;
            eventually(SOON, is_refused).await;
            let refused = owner.api.get("/v1/sessions").await;
            refused.problem(503, "UNAVAILABLE");
            assert!(refused.header("retry-after").is_some());
            let ready = Api::new(&fixture.service.internal_url());
            assert_eq!(ready.get("/readyz").await.status, 503);
            assert_eq!(ready.get("/healthz").await.status, 200);
            cluster.up().unwrap();
            eventually(SOON, async || ready.get("/readyz").await.status == 200).await;
        }
        eventually(SOON, async || done.load(Ordering::SeqCst) >= 320).await;
        stop.store(true, Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        check(&owner, &session, acknowledged).await;
        // A stream that stayed open has sent messages, or that it ends.
        while let Ok(Some(event)) = live.next_within(Duration::from_millis(200)).await {
            assert!(matches!(event.name.as_str(), "message" | "end"), "{event:?}");
        }
    });
}
