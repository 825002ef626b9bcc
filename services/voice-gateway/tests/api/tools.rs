//! The agent's tools of the server: what they read, for whom, and until when.

use ensemble_chassis::Clock;
use ensemble_chassis::auth::VoiceToolClaims;
use ensemble_doubles::livekit::AgentPlan;
use ensemble_rpc::orchestrator::{RunBrief, TaskBrief};
use ensemble_rpc::sessions::SessionBrief;
use ensemble_testkit::SOON;
use ensemble_testkit::*;
use ensemble_types::ids::{GatewaySessionId, RunId, UserId};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started};

const TOOLS: [&str; 3] = ["runs.list", "runs.show?run=4wz9k2xq", "sessions.list"];

/// A conversation of a signed-in person.
async fn talk(fixture: &Fixture, user: UserId) -> Started {
    let body = json!({ "userId": user, "sessionId": "session-1" });
    let started = Started::of(&fixture.as_user(user, "/v1/voice/session/start", &body).await);
    fixture.double.join(&started.token).unwrap();
    fixture.status_becomes(&started.id, |status| status["state"] == "active").await;
    started
}

fn metadata(fixture: &Fixture, started: &Started) -> Value {
    serde_json::from_str(&fixture.double.dispatch_metadata(&started.room).unwrap()).unwrap()
}

/// The agent, with the address and the token of its dispatch.
fn agent(fixture: &Fixture, started: &Started) -> Api {
    let tools = metadata(fixture, started)["tools"].clone();
    let base = format!("{}/v1/voice/tools", fixture.gateway.public_url());
    assert_eq!(tools["baseUrl"], base);
    Api::new(&base).with_token(tools["token"].as_str().unwrap())
}

fn run(title: &str, finished_at: i64) -> RunBrief {
    RunBrief {
        id: RunId::generate().to_string(),
        r#ref: "4wz9k2xq".to_owned(),
        title: title.to_owned(),
        status: if finished_at == 0 { "running" } else { "failed" }.to_owned(),
        total: 3,
        running: 1,
        finished_at,
        created_at: 1_774_483_200_000_000,
        ..RunBrief::default()
    }
}

fn work_of(fixture: &Fixture, user: UserId) {
    let sealed =
        TaskBrief { r#ref: "2zzzzzzz".to_owned(), status: "running".to_owned(), sealed: true, ..TaskBrief::default() };
    let clear = TaskBrief {
        r#ref: "1zzzzzzz".to_owned(),
        title: "Tests".to_owned(),
        status: "queued".to_owned(),
        provider: "claude".to_owned(),
        waiting_for: "machine".to_owned(),
        ..TaskBrief::default()
    };
    fixture.peers.add_run(user, run("Fix it", 0), vec![clear, sealed]);
    fixture.peers.add_run(user, run("", 1_774_483_300_000_000), Vec::new());
    let session = SessionBrief {
        id: "a".to_owned(),
        status: "active".to_owned(),
        attention: "permission".to_owned(),
        open: 2,
        online: true,
        ..SessionBrief::default()
    };
    fixture.peers.add_session(user, session);
}

on_both_databases! {
    async fn an_agent_reads_what_its_user_has(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (fixture.peers.new_user(), fixture.peers.new_user());
        work_of(&fixture, alice);
        fixture.peers.add_run(bob, RunBrief { r#ref: "0bbbbbbb".to_owned(), ..run("Bob's", 0) }, Vec::new());
        let started = talk(&fixture, alice).await;
        let agent = agent(&fixture, &started);
        let runs = agent.get("/runs.list").await.expect(200);
        assert_eq!((runs["runs"].as_array().unwrap().len(), &runs["more"]), (2, &json!(false)), "{runs}");
        assert_eq!((&runs["runs"][0]["title"], &runs["runs"][1]["title"]), (&json!("Fix it"), &Value::Null));
        assert_eq!(agent.get("/runs.list?active=true").await.expect(200)["runs"].as_array().unwrap().len(), 1);
        assert_eq!(agent.get("/runs.list?limit=1").await.expect(200)["more"], true);
        let shown = agent.get("/runs.show?run=4wz9k2xq").await.expect(200);
        assert_eq!((&shown["run"]["status"], &shown["run"]["summary"]["total"]), (&json!("running"), &json!(3)));
        assert_eq!(shown["tasks"][0], json!({ "ref": "1zzzzzzz", "title": "Tests", "status": "queued", "provider": "claude",
            "attempt": 0, "waitingFor": "machine", "sealed": false }));
        assert_eq!(shown["tasks"][1]["sealed"], true);
        let sessions = agent.get("/sessions.list").await.expect(200);
        assert_eq!((&sessions["sessions"][0]["attention"], &sessions["sessions"][0]["open"]), (&json!("permission"), &json!(2)));
        // What belongs to others does not exist.
        agent.get("/runs.show?run=0bbbbbbb").await.problem(404, "NOT_FOUND");
        for (query, field) in [("/runs.list?limit=21", "?limit"), ("/sessions.list?limit=0", "?limit"), ("/runs.show", "?run"),
            ("/runs.show?run=x/../y", "?run")] {
            assert_eq!(agent.get(query).await.bad_fields(), [field], "{query}");
        }
        // It reads only.
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            Api::send(agent.request(method, "/runs.list")).await.problem(405, "METHOD_NOT_ALLOWED");
        }
        // Each of them was recorded, with the one that found nothing.
        assert_eq!(fixture.status(&started.id).await["toolCalls"], 6);
        let metrics = fixture.metrics().await;
        assert!(metrics.contains("voice_tool_calls_total{tool=\"runs.show\",service=\"voice-gateway\"} 2"), "{metrics}");
    }

    async fn only_the_token_of_an_open_session_is_taken(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (fixture.peers.new_user(), fixture.peers.new_user());
        work_of(&fixture, alice);
        let started = talk(&fixture, alice).await;
        let agent = agent(&fixture, &started);
        let issuer = fixture.peers.issuer();
        let (now, id) = (Clock::system().now(), started.id.parse::<GatewaySessionId>().unwrap());
        let later = Timestamp::from_unix_seconds(now.unix_seconds() + 600);
        let claims = |user: UserId, session: GatewaySessionId| VoiceToolClaims::new(user, session, now, later);
        let good = claims(alice, id);
        agent.with_token(&issuer.voice_tools(&good)).get("/runs.list").await.expect(200);
        let own = metadata(&fixture, &started);
        let mut bad: Vec<(&str, String)> = issuer.bad_tokens(alice);
        let expired = VoiceToolClaims { exp: now.unix_seconds() - 1, ..good.clone() };
        bad.extend([
            ("a user's token", issuer.user(alice)),
            ("a machine's token", issuer.machine(alice, &fixture.peers.new_machine(alice))),
            ("the voice key", crate::fixture::VOICE_KEY.to_owned()),
            ("the agent's credential for the gateway", own["gateway"]["token"].as_str().unwrap().to_owned()),
            ("a session that there is not", issuer.voice_tools(&claims(alice, GatewaySessionId::generate()))),
            ("another user's session", issuer.voice_tools(&claims(bob, id))),
            ("another audience", issuer.voice_tools(&VoiceToolClaims { aud: "ensemble:user".to_owned(), ..good.clone() })),
            ("expired", issuer.voice_tools(&expired)),
            ("another issuer's key", Issuer::new().voice_tools(&good)),
        ]);
        for (name, token) in &bad {
            for tool in TOOLS {
                let answer = agent.with_token(token).get(&format!("/{tool}")).await;
                assert_eq!(answer.status, 401, "{tool} with {name}: {}", answer.text);
            }
        }
        for tool in TOOLS {
            Api::new(&agent.url("")).get(&format!("/{tool}")).await.problem(401, "UNAUTHENTICATED");
        }
        // It opens nothing else either.
        let token = own["tools"]["token"].as_str().unwrap();
        let gateway = Api::new(&fixture.gateway.public_url()).with_token(token);
        for path in ["/v1/voice/key".to_owned(), format!("/agent/v1/sessions/{}/context", started.id),
            format!("/v1/voice/session/{}/status", started.id)] {
            gateway.get(&path).await.problem(401, "UNAUTHENTICATED");
        }
        assert_eq!(fixture.status(&started.id).await["toolCalls"], 1, "none of them was a call");
        // It ends with its session, whatever it says itself.
        fixture.as_user(alice, "/v1/voice/session/stop", &json!({ "gatewaySessionId": started.id })).await.expect(200);
        for tool in TOOLS {
            agent.get(&format!("/{tool}")).await.problem(401, "UNAUTHENTICATED");
        }
    }

    async fn a_user_that_is_not_proven_gets_no_tools(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        let claimed = fixture.talking(&alice.to_string(), "session-1").await;
        assert_eq!(metadata(&fixture, &claimed)["tools"], Value::Null);
        // Nor does a token that names its session help.
        let now = Clock::system().now();
        let id = claimed.id.parse().unwrap();
        let token = fixture.peers.issuer().voice_tools(&VoiceToolClaims::new(alice, id, now, Timestamp::from_unix_seconds(now.unix_seconds() + 60)));
        let agent = Api::new(&fixture.gateway.public_url()).with_token(&token);
        agent.get("/v1/voice/tools/runs.list").await.problem(401, "UNAUTHENTICATED");
    }

    async fn an_agent_that_is_dispatched_again_gets_its_tools_again(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        let started = talk(&fixture, alice).await;
        fixture.double.kill_agents(&started.room);
        eventually(SOON, async || fixture.double.dispatches(&started.room) == 2).await;
        agent(&fixture, &started).get("/runs.list").await.expect(200);
    }

    async fn a_conversation_begins_without_tools_while_identity_is_away(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        fixture.peers.identity_away(true);
        let started = talk(&fixture, alice).await;
        assert_eq!(metadata(&fixture, &started)["tools"], Value::Null);
    }

    async fn what_cannot_be_read_now_is_said_to_be_unavailable(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        let started = talk(&fixture, alice).await;
        let agent = agent(&fixture, &started);
        fixture.peers.orchestrator_away(true);
        agent.get("/runs.list").await.problem(503, "UNAVAILABLE");
        agent.get("/sessions.list").await.expect(200);
        fixture.peers.orchestrator_away(false);
        fixture.peers.session_store_away(true);
        agent.get("/runs.list").await.expect(200);
        agent.get("/sessions.list").await.problem(503, "UNAVAILABLE");
    }

    async fn calls_are_limited_for_each_session(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_TOOL_CALLS_PER_MINUTE", "3")]).await;
        fixture.double.plan_agents(AgentPlan::default());
        let (alice, bob) = (fixture.peers.new_user(), fixture.peers.new_user());
        let (hers, his) = (talk(&fixture, alice).await, talk(&fixture, bob).await);
        let agents = [agent(&fixture, &hers), agent(&fixture, &his)];
        for _ in 0..3 {
            agents[0].get("/runs.list").await.expect(200);
        }
        let refused = agents[0].get("/runs.list").await;
        refused.problem(429, "RATE_LIMITED");
        assert!(refused.header("retry-after").is_some());
        agents[1].get("/runs.list").await.expect(200);
        assert_eq!(fixture.status(&hers.id).await["toolCalls"], 3);
    }
}
