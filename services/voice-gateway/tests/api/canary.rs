//! No secret and no content appears in logs, responses or metrics, not even with faults and a trace log.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ensemble_doubles::livekit::{API_SECRET, Double, Fault};
use ensemble_testkit::{Api, Backend, Peers, SOON, TestDatabase, eventually, free_address, run};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::fixture::{BRIDGE_KEY, Started, VOICE_KEY, vars};

const CANARY: &str = "canary-in-the-coal-mine";

fn spawn(log: &Path, vars: &[(String, String)]) -> Child {
    let file = std::fs::File::create(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ensemble-voice-gateway"));
    command.env_clear().envs(vars.iter().cloned()).stdin(Stdio::null());
    command.stdout(file.try_clone().unwrap()).stderr(file).kill_on_drop(true).spawn().unwrap()
}

#[test]
fn no_secret_is_written_down() {
    run(async {
        let (double, peers) = (Double::start().unwrap(), Peers::start().await);
        let database = TestDatabase::new(Backend::Sqlite, "voice-gateway", ensemble_voice_gateway::migrations()).await;
        let (public, internal) = (free_address(), free_address());
        let vars = vars(
            &double,
            &peers,
            &database,
            &[
                ("RUST_LOG", "trace"),
                ("PUBLIC_LISTEN", &public),
                ("INTERNAL_LISTEN", &internal),
                ("VOICE_RPC_TIMEOUT_MS", "200"),
                ("VOICE_DELIVERY_TIMEOUT_MS", "1000"),
            ],
        );
        let log = database.folder.path().join("log");
        let mut program = spawn(&log, &vars);
        let (public, internal) = (Api::new(&format!("http://{public}")), Api::new(&format!("http://{internal}")));
        eventually(SOON, async || {
            matches!(Api::try_send(internal.request("GET", "/readyz")).await, Ok(answer) if answer.status == 200)
        })
        .await;
        double.send_webhooks_to(public.url("/hooks/livekit"));

        let api = public.with_token(VOICE_KEY);
        let user = peers.new_user();
        let person = peers.issuer().user(user);
        let body = json!({
            "userId": user.to_string(), "sessionId": "session-1", "welcomeMessage": format!("{CANARY} welcome"),
            "initialContextPayload": { "secret": CANARY }, "toolBridgeBaseUrl": "https://app.example",
        });
        let request =
            public.with_token(&person).request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY);
        let started = Started::of(&Api::send(request.json(&body)).await);
        let metadata: Value = serde_json::from_str(&double.dispatch_metadata(&started.room).unwrap()).unwrap();
        let agent_token = metadata["gateway"]["token"].as_str().unwrap().to_owned();
        let tools_token = metadata["tools"]["token"].as_str().unwrap().to_owned();
        let bridge_token = metadata["toolBridge"]["token"].as_str().unwrap().to_owned();
        double.join(&started.token).unwrap();
        let status_path = format!("/v1/voice/session/{}/status", started.id);
        eventually(SOON, async || api.get(&status_path).await.json()["state"] == "active").await;

        let mut answers = Vec::new();
        for fault in [
            Fault::Unavailable,
            Fault::PlainUnauthorized,
            Fault::BadGateway,
            Fault::EffectWithoutAnswer(Duration::from_millis(300)),
        ] {
            double.fail_next("PerformRpc", fault.clone(), 1);
            let text = json!({ "gatewaySessionId": started.id, "text": format!("{CANARY} text") });
            answers.push(api.post("/v1/voice/session/text", &text).await.text);
            double.fail_next("CreateRoom", fault, 2);
            answers.push(api.post("/v1/voice/session/start", &json!({ "userId": "u", "sessionId": "s" })).await.text);
        }
        let context = json!({ "gatewaySessionId": started.id, "payload": { "log": CANARY.repeat(2_000) } });
        answers.push(api.post("/v1/voice/session/context", &context).await.text);
        let agent = public.with_token(&agent_token);
        let events = format!("/agent/v1/sessions/{}/events", started.id);
        for event in [
            json!({ "type": "transcript", "role": "user", "text": CANARY }),
            json!({ "type": "error", "code": "stt", "message": CANARY }),
        ] {
            answers.push(agent.post(&events, &event).await.text);
        }
        for (token, path) in [(&tools_token, "runs.list"), (&tools_token, "runs.show?run=x"), (&person, "runs.list")] {
            answers.push(public.with_token(token).get(&format!("/v1/voice/tools/{path}")).await.text);
        }
        answers.push(public.with_token("wrong-voice-key-000").get(&status_path).await.text);
        answers.push(api.get(&status_path).await.text);
        let wrong = json!({ "gatewaySessionId": started.id, "text": "x".repeat(9_000), "payload": CANARY });
        answers.push(api.post("/v1/voice/session/text", &wrong).await.text);
        answers.push(api.post("/v1/voice/session/context", &wrong).await.text);
        answers.push(internal.get("/metrics").await.text);
        answers.push(api.post("/v1/voice/session/stop", &json!({ "gatewaySessionId": started.id })).await.text);
        answers.push(api.get(&status_path).await.text);
        let config = Command::new(env!("CARGO_BIN_EXE_ensemble-voice-gateway"))
            .arg("config")
            .env_clear()
            .envs(vars.iter().cloned())
            .output()
            .await
            .unwrap();
        answers.push(String::from_utf8_lossy(&config.stdout).into_owned());
        program.kill().await.unwrap();

        let written = std::fs::read_to_string(&log).unwrap();
        assert!(written.contains(&started.id), "the log does not mention the session");
        let secrets = [
            CANARY,
            API_SECRET,
            VOICE_KEY,
            BRIDGE_KEY,
            &started.token,
            &agent_token,
            &bridge_token,
            &tools_token,
            &person,
            "Bearer ey",
        ];
        for secret in secrets {
            let line = written.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} is in the log: {line:?}");
            assert!(!answers.iter().any(|answer| answer.contains(secret)), "{secret} is in an answer");
        }
        // The key of the tool bridge is not in the database either.
        let stored = std::fs::read(database.folder.path().join("test.db")).unwrap();
        assert!(!stored.windows(BRIDGE_KEY.len()).any(|bytes| bytes == BRIDGE_KEY.as_bytes()));
    });
}
