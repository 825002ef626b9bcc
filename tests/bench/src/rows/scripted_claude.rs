//! This program as `claude` in a live session. It does what the prompt says, `ask N`, `say N`, `many N` or `lines N`, and writes the times of its
//! own clock into what it asks and says.

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::live_agent::now;

/// When it is set, this program is the agent.
pub(crate) const SCRIPT: &str = "ENSEMBLE_BENCH_CLAUDE";
/// Before the time at which the agent wrote its request.
pub(super) const ASKED: &str = "asked=";
/// Before the time at which the agent read the answer to its last request.
pub(super) const ANSWERED: &str = "answered=";
/// Before the time of a first token.
pub(super) const TOKEN: &str = "token=";
/// Before the next request or text: a model needs longer.
const THINKS: Duration = Duration::from_millis(500);
/// Between two tokens of a text.
const TOKEN_EVERY: Duration = Duration::from_millis(50);
const TOKENS: usize = 20;
/// Between two lines of `lines N`.
const LINE_EVERY: Duration = Duration::from_millis(100);

/// The agent, until its input ends.
pub(crate) fn agent() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--version") => return print_text("2.1.197 (bench)"),
        Some("auth") => return print_text(r#"{"loggedIn":true}"#),
        _ => {}
    }
    let mut left = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let read_at = now();
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        match message.get("type").and_then(Value::as_str) {
            Some("control_request") => {
                let answer = json!({ "models": [], "commands": [] });
                let response =
                    json!({ "subtype": "success", "request_id": message.get("request_id"), "response": answer });
                print(&json!({ "type": "control_response", "response": response }))?;
            }
            Some("user") => {
                begin(&message)?;
                match prompt(&message) {
                    ("ask", count) => {
                        left = count;
                        ask(left, None)?;
                    }
                    ("many", count) => lines(count, Duration::ZERO)?,
                    ("lines", count) => lines(count, LINE_EVERY)?,
                    (_, count) => say(count)?,
                }
            }
            Some("control_response") if left > 1 => {
                left -= 1;
                std::thread::sleep(THINKS);
                ask(left, Some(read_at))?;
            }
            Some("control_response") => end(&format!("{ANSWERED}{read_at}"))?,
            _ => {}
        }
    }
    Ok(())
}

/// The word and the number of a prompt.
fn prompt(message: &Value) -> (&str, u32) {
    let text = message.pointer("/message/content").and_then(Value::as_str).unwrap_or_default();
    let (word, count) = text.split_once(' ').unwrap_or((text, ""));
    (word, count.parse().unwrap_or(1))
}

fn begin(message: &Value) -> Result<()> {
    let mut replay = message.clone();
    if let Some(fields) = replay.as_object_mut() {
        fields.insert("isReplay".to_owned(), json!(true));
    }
    print(&replay)?;
    print(&json!({
        "type": "system", "subtype": "init", "session_id": "bench", "claude_code_version": "2.1.197", "model": "bench",
        "permissionMode": "default",
    }))
}

fn ask(number: u32, answered_at: Option<f64>) -> Result<()> {
    let before = answered_at.map(|at| format!(" {ANSWERED}{at}")).unwrap_or_default();
    let asked_at = now();
    let input = json!({ "command": format!("true {ASKED}{asked_at}{before}") });
    // No other request of the session has this id, before or after a restart of the agent.
    let (id, tool) = (format!("request-{asked_at:.0}-{number}"), format!("tool-{asked_at:.0}-{number}"));
    let request = json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": input, "tool_use_id": tool });
    print(&json!({ "type": "control_request", "request_id": id, "request": request }))
}

/// A text begins with the time of its first token and grows, so that a frame which is lost is made up for.
fn say(count: u32) -> Result<()> {
    for _ in 1..=count {
        let mut text = String::new();
        for _ in 0..TOKENS {
            let token = if text.is_empty() { format!("{TOKEN}{} ", now()) } else { "more ".to_owned() };
            text.push_str(&token);
            let delta = json!({ "type": "text_delta", "text": token });
            let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
            print(&json!({ "type": "stream_event", "event": event }))?;
            std::thread::sleep(TOKEN_EVERY);
        }
        whole(&text)?;
        std::thread::sleep(THINKS);
    }
    end("done")
}

fn lines(count: u32, pause: Duration) -> Result<()> {
    for number in 1..=count {
        whole(&format!("line {number}"))?;
        std::thread::sleep(pause);
    }
    end("done")
}

fn whole(text: &str) -> Result<()> {
    print(&json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": text }] } }))
}

fn end(text: &str) -> Result<()> {
    whole(text)?;
    print(&json!({ "type": "result", "subtype": "success", "is_error": false, "result": text, "total_cost_usd": 0.0 }))
}

fn print(message: &Value) -> Result<()> {
    print_text(&message.to_string())
}

fn print_text(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
