//! What operations cost: `tests/costs.toml`.

use ensemble_testkit::{Costs, Events, explained, on_both_databases};
use ensemble_types::ids::MessageId;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::{Client, Fixture, NO_SWEEP, batch, messages};

const STREAMS: usize = 100;

fn draft(content: &str) -> Value {
    json!({ "content": content, "localId": MessageId::generate().to_string(), "keyEpoch": 1 })
}

async fn append(client: &Client, session: &str) {
    client.api.post(&messages(session), &draft("content")).await.expect(201);
}

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = explained(Fixture::start_with(on, &NO_SWEEP)).await;
        let owner = fixture.client();
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let session = owner.session().await;
        owner.fill(&session, 600).await;
        for _ in 0..105 {
            owner.session().await;
        }
        let hosted = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        let hosted = format!("/v1/sessions/{}", hosted["id"].as_str().unwrap());
        let guest = fixture.guest(&owner, &session, "edit").await;
        let costs = Costs::new("session-store", on, &fixture.database.url);
        let mut costs = costs.with_requests(|| fixture.peers.requests());
        let nothing = async || {};

        costs.count("create a session", nothing, async |()| drop(owner.session().await)).await;
        costs.count("create a session on a machine that is new here", async || fixture.peers.new_machine(owner.id), async |machine| {
            let draft = Client { machine, ..owner.clone() }.draft();
            owner.api.post("/v1/sessions", &draft).await.expect(201);
        }).await;
        costs.count("share a session", async || (owner.session().await, fixture.client()), async |(session, guest)| {
            owner.share(&session, &guest, "view").await;
        }).await;
        costs.count("append a message", nothing, async |()| append(&owner, &session).await).await;
        costs.count("append a message as a guest", nothing, async |()| append(&guest, &session).await).await;
        costs.count("append 64 messages", nothing, async |()| {
            let drafts: Vec<Value> = (0..64).map(|_| draft("content")).collect();
            owner.api.post(&batch(&session), &json!({ "messages": drafts })).await.expect(201);
        }).await;
        let page = format!("{}?after=500&limit=50", messages(&session));
        costs.count("page of 50 messages", nothing, async |()| {
            owner.api.get(&page).await.expect(200);
        }).await;
        costs.count("list of 100 sessions", nothing, async |()| {
            let list = owner.api.get("/v1/sessions?limit=100").await.expect(200);
            assert_eq!(list["sessions"].as_array().unwrap().len(), 100);
        }).await;
        costs.count("list of 100 sessions with shared ones", nothing, async |()| {
            owner.api.get("/v1/sessions?limit=100&include=shared").await.expect(200);
        }).await;
        costs.count("read a session", nothing, async |()| {
            owner.api.get(&format!("/v1/sessions/{session}")).await.expect(200);
        }).await;
        costs.count("read a session as a guest", nothing, async |()| {
            guest.api.get(&format!("/v1/sessions/{session}")).await.expect(200);
        }).await;
        let beat = json!({ "heartbeat": { "thinking": true, "hostId": Uuid::from_bytes([1; 16]) } });
        machine.patch(&hosted, &beat).await.expect(200);
        costs.count("heartbeat of a session", nothing, async |()| {
            machine.patch(&hosted, &beat).await.expect(200);
        }).await;
        let path = format!("{}/stream", messages(&session));
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(Events::open(owner.api.request("GET", &path)).await);
        }
        let streams = tokio::sync::Mutex::new(streams);
        costs.count("append a message that 100 streams send", nothing, async |()| {
            append(&owner, &session).await;
            for stream in streams.lock().await.iter_mut() {
                assert_eq!(stream.expect().await.name, "message");
            }
        }).await;
        costs.check();
    }
}
