//! Dashboards and alerts only use metrics and labels that the programs export: services, the voice agent, and the backups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ensemble_doubles::livekit::Double;
use ensemble_testkit::{Api, SOON, eventually};
use serde_json::{Value, json};

use crate::stack::{SERVICES, Stack};

/// The labels of each metric.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus adds, and the bounds of histograms.
const ADDED: &[&str] = &["le", "instance", "job", "namespace"];
const VOICE_KEY: (&str, &str) = ("X-Voice-Key", "voice-key-of-the-test-stack");
/// An endpoint for events of voice sessions. Nothing listens there, and a failed call is counted, too.
const ENDPOINTS: [(&str, &str); 2] = [
    ("VOICE_WEBHOOKS", "ours http://127.0.0.1:9/events whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("VOICE_WEBHOOK_TRUSTED_ORIGINS", "http://127.0.0.1:9"),
];

#[tokio::test]
async fn dashboards_and_alerts_use_existing_metrics() {
    let livekit = Double::start().expect("a free port");
    let stack = Stack::start("http://127.0.0.1:9", &livekit, &ENDPOINTS).await;
    livekit.send_webhooks_to(stack.edge().url("/hooks/livekit"));
    use_sessions_and_runs(&stack).await;
    use_voice(&stack, &livekit).await;
    let others = [written_by_voice_agent(), written_by_backup()];
    let asked = expressions();
    assert!(asked.len() > 100, "only {} expressions were found", asked.len());
    // Some metrics are only updated from time to time.
    let timeout = Duration::from_secs(60);
    let (mut missing, began) = (Vec::new(), Instant::now());
    eventually(2 * timeout, async || {
        let written = known(&[written(&stack).await.as_slice(), &others].concat());
        missing = asked.iter().flat_map(|(place, expression)| missing_metrics(place, expression, &written)).collect();
        missing.is_empty() || began.elapsed() > timeout
    })
    .await;
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Creates a session with a message, and a run that a runner finishes.
async fn use_sessions_and_runs(stack: &Stack) {
    let user = stack.user().await.api;
    let sealed = json!({ "metadata": "sealed", "encryptionKey": "sealed" });
    let with = |more: Value| {
        let mut body = sealed.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    user.post("/v1/machines", &with(json!({ "id": "laptop" }))).await.expect(201);
    let session = user.post("/v1/sessions", &with(json!({ "machineId": "laptop" }))).await.expect(201);
    let messages = format!("/v3/sessions/{}/messages", text(&session, "id"));
    user.post(&messages, &json!({ "content": "sealed", "localId": "1" })).await.expect(201);
    let runner = user.post("/v1/auth/tokens", &json!({ "machineId": "laptop" })).await.expect(201);
    let runner = stack.edge().with_token(&text(&runner, "token"));
    user.post("/v1/orchestrator/runs", &json!({ "tasks": [{ "prompt": "hi", "provider": "claude" }] }))
        .await
        .expect(201);
    let want = json!({ "machineId": "laptop", "providers": ["claude"], "capacity": 1, "waitMs": 5000 });
    let leases = runner.post("/v1/orchestrator/leases", &want).await.expect(200);
    let lease = leases.pointer("/leases/0").unwrap_or_else(|| panic!("no lease: {leases}"));
    let finish = format!("/v1/orchestrator/leases/{}/finish", text(lease, "id"));
    let end = json!({ "fence": lease["fence"], "status": "completed", "exitCode": 0, "outputSummary": "done" });
    runner.post(&finish, &end).await.expect(200);
}

/// Runs a voice session with a person, an agent and a text, from start to stop.
async fn use_voice(stack: &Stack, livekit: &Double) {
    let user = stack.user().await;
    let edge = stack.edge();
    let voice = async |caller: &Api, path: &str, body: &Value| {
        let request = caller.request("POST", path).header(VOICE_KEY.0, VOICE_KEY.1).json(body);
        Api::send(request).await.expect(200)
    };
    let body = json!({ "userId": user.id, "sessionId": "a", "language": "en" });
    // With the user's own token, because a voice key alone gives the agent no tools.
    let room = voice(&user.api, "/v1/voice/session/start", &body).await;
    let session = text(&room, "gatewaySessionId");
    livekit.join(&text(&room, "participantToken")).expect("a good token");
    let mut dispatched = None;
    eventually(SOON, async || {
        dispatched = livekit.rooms().iter().find_map(|room| livekit.dispatch_metadata(&room.name));
        dispatched.is_some()
    })
    .await;
    let agent: Value = serde_json::from_str(&dispatched.unwrap_or_default()).expect("JSON for the agent");
    let events = agent.pointer("/gateway/eventsUrl").and_then(Value::as_str).expect("an address for events");
    let path = events.find("/agent/").and_then(|at| events.get(at..)).expect("a path of the edge");
    let token = agent.pointer("/gateway/token").and_then(Value::as_str).expect("a token for the agent");
    let reported = edge.with_token(token).post(path, &json!({ "type": "ready" })).await;
    assert!(reported.status < 300, "{} {}", reported.status, reported.text);
    let token = agent.pointer("/tools/token").and_then(Value::as_str).expect("a token for the tools");
    edge.with_token(token).get("/v1/voice/tools/runs.list").await.expect(200);
    let this = json!({ "gatewaySessionId": session });
    voice(&edge, "/v1/voice/session/text", &json!({ "gatewaySessionId": session, "text": "hello" })).await;
    eventually(SOON, async || livekit.rooms().iter().any(|room| !livekit.texts(&room.name).is_empty())).await;
    voice(&edge, "/v1/voice/session/stop", &this).await;
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {of}")).to_owned()
}

/// Every expression of the dashboards and alerts, with its file.
fn expressions() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let folder = std::fs::read_dir(deploy("grafana/dashboards")).expect("the dashboards");
    let dashboards: Vec<PathBuf> = folder.map(|entry| entry.expect("a dashboard").path()).collect();
    for path in dashboards {
        let board: Value = serde_json::from_str(&read(&path)).expect("JSON");
        let panels = board["panels"].as_array().expect("panels");
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        all.extend(targets.map(|target| (name(&path), text(target, "expr"))));
    }
    let alerts = deploy("prometheus/alerts.yaml");
    let rules = read(&alerts);
    let rules = rules.split("- alert:").skip(1).filter_map(|rule| rule.split_once("expr:")?.1.split_once("for:"));
    all.extend(rules.map(|(expression, _)| (name(&alerts), expression.to_owned())));
    all
}

/// A path in the folder `deploy`.
fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What the services export now.
async fn written(stack: &Stack) -> Vec<String> {
    let mut all = Vec::new();
    for service in SERVICES {
        all.push(stack.inside(service).get("/metrics").await.text);
    }
    all
}

/// What the voice agent exports.
fn written_by_voice_agent() -> String {
    let program = "from health import Jobs; print(Jobs(4, 0.7).metrics(is_healthy=True))";
    printed(Command::new("python3").args(["-c", program]).current_dir(deploy("voice-agent")))
}

/// What the program that makes backups exports.
fn written_by_backup() -> String {
    printed(Command::new("bash").arg(deploy("backup/run.sh")).arg("metrics").env("BACKUP_FOLDER", deploy("backup")))
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The metrics of these texts, each with its labels.
fn known(texts: &[String]) -> Labels {
    let mut known = Labels::new();
    for sample in texts.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with('#')) {
        for (number, labels) in selectors(sample) {
            known.entry(number).or_default().extend(labels);
        }
    }
    known
}

/// The metrics and labels of an expression that do not exist.
fn missing_metrics(place: &str, expression: &str, written: &Labels) -> Vec<String> {
    let mut missing = Vec::new();
    let mut known: BTreeSet<&str> = ADDED.iter().copied().collect();
    for (number, labels) in selectors(expression) {
        match written.get(&number) {
            None => missing.push(format!("{place}: no service exports {number}")),
            Some(has) => {
                known.extend(has.iter().map(String::as_str));
                let unknown = labels.iter().filter(|label| !has.contains(*label) && !ADDED.contains(&label.as_str()));
                missing.extend(unknown.map(|label| format!("{place}: {number} has no label {label}")));
            }
        }
    }
    for by in expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next()) {
        let unknown = by.split(',').map(str::trim).filter(|label| !known.contains(label));
        missing.extend(unknown.map(|label| format!("{place}: no label {label} to sum by in {expression}")));
    }
    missing
}

/// Our metrics in an expression or a sample, each with its labels.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("ensemble_")
        .filter(|(at, _)| !text[..*at].ends_with(is_word))
        .map(|(at, _)| {
            let rest = &text[at..];
            let (number, rest) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let number =
                ["_bucket", "_count", "_sum"].iter().find_map(|end| number.strip_suffix(end)).unwrap_or(number);
            let inside = rest.strip_prefix('{').map(outside_quotes).unwrap_or_default();
            let labels = inside.split(',').map(|part| part.trim().chars().take_while(|c| is_word(*c)).collect());
            (number.to_owned(), labels.filter(|label: &String| !label.is_empty()).collect())
        })
        .collect()
}

/// The text up to the closing brace, without quoted parts.
fn outside_quotes(text: &str) -> String {
    let mut is_quoted = false;
    let mut stored = String::new();
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => break,
            _ if !is_quoted => stored.push(c),
            _ => {}
        }
    }
    stored
}
