//! A live session, and what the services tell a collector and Prometheus about it.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_doubles::livekit::Double;
use ensemble_testkit::eventually;
use serde_json::Value;
use tempfile::TempDir;

use crate::collector::Collector;
use crate::stack::{SERVICES, Stack, program};

const TITLE: &str = "kanarientitel";
const TEXT: &str = "kanarientext";
const COMMAND: &str = "kanarienbefehl";
const ALL: [&str; 3] = [TITLE, TEXT, COMMAND];
const SOON: Duration = Duration::from_secs(60);

/// Speaks claude's stream JSON: asks whether it may run the prompt as a command, and says it when it has the answer.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "2.1.197 (scripted)"; exit 0; }
[ "$1" = "auth" ] && { echo '{"loggedIn":true}'; exit 0; }
value() { rest=${line#*\"$1\":\"}; printf '%s' "${rest%%\"*}"; }
while IFS= read -r line; do
  case "$line" in
    *'"type":"control_request"'*)
      printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{"models":[],"commands":[]}}}\n' "$(value request_id)" ;;
    *'"type":"user"'*)
      text=$(value content)
      printf '{"type":"user","isReplay":true,"uuid":"%s","message":{"role":"user","content":"x"}}\n' "$(value uuid)"
      echo '{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.197","model":"m","permissionMode":"default"}'
      printf '{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t","input":{"command":"kanarienbefehl %s"}}}\n' "$text" ;;
    *'"type":"control_response"'*)
      printf '{"type":"assistant","message":{"content":[{"type":"text","text":"said %s"}]}}\n' "$text"
      echo '{"type":"result","subtype":"success","is_error":false,"result":"","total_cost_usd":0}' ;;
  esac
done
"#;

/// A person with the real program, and an agent that needs no model.
struct Person {
    home: TempDir,
    server: String,
}

impl Person {
    fn new(server: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let claude = home.path().join("claude");
        std::fs::write(&claude, CLAUDE).unwrap();
        std::fs::set_permissions(&claude, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, server: server.to_owned() }
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(program("edge-proxy").with_file_name("ensemble"))
            .args(arguments)
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("ENSEMBLE_HOME", self.home.path())
            .env("ENSEMBLE_SERVER", &self.server)
            .env("PATH", format!("{}:/usr/bin:/bin", self.home.path().display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits for a message of this type, and returns it.
    fn until(&self, session: &str, kind: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let log = self.run(&["log", session, "--json"]);
            let bodies = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].take());
            if let Some(found) = bodies.into_iter().find(|body| body["type"] == kind && is_wanted(body)) {
                return found;
            }
            assert!(begun.elapsed() < SOON, "no {kind}: {log}");
        }
    }

    /// The process id of the host in the background.
    fn host(&self) -> Option<String> {
        let folder = std::fs::read_dir(self.home.path().join("hosts")).ok()?.next()?.ok()?.path();
        std::fs::read_to_string(folder.join("pid")).ok()
    }
}

impl Drop for Person {
    /// The host keeps running without its server.
    fn drop(&mut self) {
        if let Some(pid) = self.host() {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
    }
}

#[tokio::test]
async fn traces_and_metrics_have_nothing_of_a_live_session() {
    let (collector, livekit) = (Collector::start().expect("a free port"), Double::start().expect("a free port"));
    let stack = Stack::start(&collector.url, &livekit, &[]).await;
    let url = stack.url().to_owned();
    let works = tokio::task::spawn_blocking(move || {
        let person = Person::new(&url);
        person.run(&["login"]);
        let session = person.run(&["claude", "--title", TITLE, "--detach", TEXT]).trim().to_owned();
        let asked = person.until(&session, "permission", |_| true);
        let request = asked["requestId"].as_str().unwrap().to_owned();
        person.run(&["answer", &session, "allow", "--request", &request]);
        person.until(&session, "turn", |body| body["state"] == "ended");
        let shown = person.run(&["log", &session]) + &person.run(&["sessions"]);
        person.run(&["stop", &session]);
        shown
    });
    let shown = works.await.unwrap();
    for canary in ALL {
        assert!(shown.contains(canary), "people see it: {shown}");
    }
    // Spans are sent shortly after their end.
    for service in ["ensemble-edge-proxy", "ensemble-session-store", "ensemble-identity"] {
        eventually(SOON, async || collector.has(service)).await;
    }
    eventually(SOON, async || collector.has("/v3/sessions/{id}/messages")).await;
    for canary in ALL {
        assert!(!collector.has(canary), "{canary} is in a trace");
    }
    for service in SERVICES {
        let metrics = stack.inside(service).get("/metrics").await.text;
        assert!(metrics.contains("ensemble_build_info"), "{service} has metrics");
        for canary in ALL {
            assert!(!metrics.contains(canary), "{canary} is in the metrics of {service}");
        }
    }
}
