//! The spans of one request across real programs, with the right parents.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use ensemble_doubles::livekit::Double;
use ensemble_testkit::Api;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use crate::collector::{Collector, Span};
use crate::stack::{Stack, program};

/// The trace of a caller.
struct CallerTrace {
    trace: &'static str,
    span: &'static str,
}

impl CallerTrace {
    const fn new(trace: &'static str, span: &'static str) -> Self {
        Self { trace, span }
    }

    fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

async fn post(api: &Api, path: &str, body: &Value, caller: &CallerTrace) -> Value {
    let answer = Api::send(api.request("POST", path).header("traceparent", caller.header()).json(body)).await;
    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text);
    answer.json()
}

fn one<'a>(spans: &'a [Span], service: &str, kind: SpanKind, name: &str) -> Option<&'a Span> {
    spans.iter().find(|span| span.service == format!("ensemble-{service}") && span.kind == kind && span.name == name)
}

fn must<'a>(spans: &'a [Span], service: &str, kind: SpanKind, name: &str) -> &'a Span {
    one(spans, service, kind, name)
        .unwrap_or_else(|| panic!("no {kind:?} span {name:?} of {service} in {}", list(spans)))
}

fn list(spans: &[Span]) -> String {
    spans.iter().map(|s| format!("\n  {} {:?} {:?} {} <- {}", s.service, s.kind, s.name, s.id, s.parent)).collect()
}

async fn stack() -> (Collector, Stack, Double) {
    let collector = Collector::start().expect("a free port");
    let livekit = Double::start().expect("a free port");
    let stack = Stack::start(&collector.url, &livekit, &[]).await;
    (collector, stack, livekit)
}

#[tokio::test]
async fn one_trace_runs_from_the_caller_through_the_edge_to_the_database_and_the_peers() {
    let (collector, stack, _livekit) = stack().await;
    let user = stack.user().await;
    let machine = json!({ "id": "laptop", "metadata": "sealed", "encryptionKey": "sealed" });
    user.api.post("/v1/machines", &machine).await;

    let caller = CallerTrace::new("11111111111111111111111111111111", "1111111111111111");
    let body = json!({ "machineId": "laptop", "metadata": "sealed", "encryptionKey": "sealed" });
    let session = post(&user.api, "/v1/sessions", &body, &caller).await;
    let get = "ensemble.machines.v1.MachineDirectory/Get";
    let spans = collector
        .trace(caller.trace, |spans| {
            one(spans, "machine-registry", SpanKind::Server, get).is_some()
                && one(spans, "session-store", SpanKind::Server, "POST /v1/sessions").is_some()
                && spans.iter().filter(|span| span.kind == SpanKind::Client).count() >= 3
                && spans.iter().any(|span| span.service == "ensemble-edge-proxy")
        })
        .await;

    let edge = spans.iter().find(|span| span.service == "ensemble-edge-proxy" && span.kind == SpanKind::Server);
    let edge = edge.unwrap_or_else(|| panic!("no span of the edge in {}", list(&spans)));
    assert_eq!(edge.parent, caller.span, "the edge continues the caller's trace: {}", list(&spans));
    let service = must(&spans, "session-store", SpanKind::Server, "POST /v1/sessions");
    assert_eq!(service.parent, edge.id, "the service is called by the edge: {}", list(&spans));
    let call = must(&spans, "session-store", SpanKind::Client, get);
    assert_eq!(call.parent, service.id, "the internal call is the service's: {}", list(&spans));
    let peer = must(&spans, "machine-registry", SpanKind::Server, get);
    assert_eq!(peer.parent, call.id, "the peer is called by it: {}", list(&spans));
    let databases = |service: &str, parent: &Span| {
        let is_sql = |span: &&Span| {
            span.service == format!("ensemble-{service}")
                && span.attributes.contains(&("db.system.name".to_owned(), "sqlite".to_owned()))
        };
        spans.iter().filter(is_sql).any(|span| span.kind == SpanKind::Client && span.parent == parent.id)
    };
    assert!(databases("session-store", service), "the service's SQL: {}", list(&spans));
    assert!(databases("machine-registry", peer), "the peer's SQL: {}", list(&spans));

    // A batch commits several requests. Its span still belongs to the trace of the request.
    let caller = CallerTrace::new("22222222222222222222222222222222", "2222222222222222");
    let path = format!("/v3/sessions/{}/messages", session["id"].as_str().expect("an id"));
    post(&user.api, &path, &json!({ "content": "sealed", "localId": "1" }), &caller).await;
    let spans = collector
        .trace(caller.trace, |spans| {
            ["append", "append messages", "POST /v3/sessions/{id}/messages"]
                .iter()
                .all(|name| spans.iter().any(|span| span.name == *name))
        })
        .await;
    let service = must(&spans, "session-store", SpanKind::Server, "POST /v3/sessions/{id}/messages");
    let batch = must(&spans, "session-store", SpanKind::Internal, "append");
    assert_eq!(batch.parent, service.id, "{}", list(&spans));
    assert_eq!(must(&spans, "session-store", SpanKind::Client, "append messages").parent, batch.id, "{}", list(&spans));
}

/// The real runner, with an agent that finishes at once.
struct Runner {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Runner {
    fn start(server: &str, token: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = folder.path().join("claude");
        let ends = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
        let ready =
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}"#;
        let script = format!("#!/bin/sh\nread -r _\necho '{ready}'\nread -r _\necho '{ends}'\n");
        std::fs::write(&agent, script).expect("an agent");
        std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("a program");
        let child = Command::new(program("runner"))
            .env("ENSEMBLE_SERVER", server.trim_end_matches('/'))
            .env("ENSEMBLE_MACHINE_ID", "laptop")
            .env("ENSEMBLE_MACHINE_TOKEN", token)
            .env("ENSEMBLE_RUNNER_ACCEPT", "any")
            .env("ENSEMBLE_RUNNER_STATE_DIR", folder.path().join("state"))
            .env("ENSEMBLE_RUNNER_ROOTS", folder.path())
            .env("ENSEMBLE_RUNNER_CLAUDE_PROGRAM", &agent)
            .env("HOME", folder.path())
            .env("RUST_LOG", "warn")
            .spawn()
            .expect("a runner");
        Self { child, _folder: folder }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_trace_continues_in_the_attempt_of_a_runner_and_in_the_calls_to_livekit() {
    let (collector, stack, _livekit) = stack().await;
    let user = stack.user().await;
    user.api.post("/v1/machines", &json!({ "id": "laptop", "metadata": "sealed", "encryptionKey": "sealed" })).await;
    let token = user.api.post("/v1/auth/tokens", &json!({ "machineId": "laptop" })).await.json();
    let _runner = Runner::start(&stack.edge().url(""), token["token"].as_str().expect("a token"));

    let caller = CallerTrace::new("33333333333333333333333333333333", "3333333333333333");
    let run = json!({ "tasks": [{ "prompt": "say hello", "provider": "claude" }] });
    post(&user.api, "/v1/orchestrator/runs", &run, &caller).await;
    // Reports are written in batches, but a heartbeat is written by itself.
    let (beat, finish) = ("POST /v1/orchestrator/leases/{id}/heartbeat", "POST /v1/orchestrator/leases/{id}/finish");
    let spans = collector
        .trace(caller.trace, |spans| {
            // With the span of the edge, which comes from another process.
            let is_there = |name: &str| {
                let call = one(spans, "orchestrator", SpanKind::Server, name);
                call.is_some_and(|call| spans.iter().any(|span| span.id == call.parent))
            };
            is_there("POST /v1/orchestrator/runs")
                && is_there(beat)
                && is_there(finish)
                && one(spans, "orchestrator", SpanKind::Client, "extend a lease").is_some()
        })
        .await;
    let submitted = must(&spans, "orchestrator", SpanKind::Server, "POST /v1/orchestrator/runs");
    for name in [beat, finish] {
        let call = must(&spans, "orchestrator", SpanKind::Server, name);
        let edge = spans.iter().find(|span| span.id == call.parent);
        let edge = edge.unwrap_or_else(|| panic!("{name} did not come through the edge: {}", list(&spans)));
        assert_eq!(edge.service, "ensemble-edge-proxy", "{}", list(&spans));
        assert_eq!(edge.parent, submitted.id, "the attempt's parent is the submission: {}", list(&spans));
    }
    let beat = must(&spans, "orchestrator", SpanKind::Server, beat);
    let sql = must(&spans, "orchestrator", SpanKind::Client, "extend a lease");
    assert_eq!(sql.parent, beat.id, "the SQL of the attempt: {}", list(&spans));

    let caller = CallerTrace::new("44444444444444444444444444444444", "4444444444444444");
    let body = json!({ "userId": user.id, "sessionId": "a", "language": "en" });
    let start =
        stack.edge().request("POST", "/v1/voice/session/start").header("X-Voice-Key", "voice-key-of-the-test-stack");
    let room = Api::send(start.header("traceparent", caller.header()).json(&body)).await;
    assert_eq!(room.status, 200, "{}", room.text);
    let spans = collector
        .trace(caller.trace, |spans| {
            one(spans, "voice-gateway", SpanKind::Client, "CreateRoom").is_some()
                && one(spans, "voice-gateway", SpanKind::Server, "POST /v1/voice/session/start").is_some()
        })
        .await;
    let start = must(&spans, "voice-gateway", SpanKind::Server, "POST /v1/voice/session/start");
    assert_eq!(must(&spans, "voice-gateway", SpanKind::Client, "CreateRoom").parent, start.id, "{}", list(&spans));
}
