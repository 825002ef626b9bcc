//! Claude Code (`claude`), checked against 2.1.

use serde_json::Value;

use super::agent::{Agent, Call, Invocation, Permission};
use super::excerpt::one_line;
use super::json::{count, list, text};
use super::transcript::{Ending, Refusal, Transcript};

/// The `claude` program.
pub(super) struct Claude;

impl Agent for Claude {
    fn inherits(&self) -> &'static [&'static str] {
        &["ANTHROPIC_*", "CLAUDE_*"]
    }

    fn invocation(&self, call: &Call<'_>) -> Invocation {
        let mode = match call.permission {
            Permission::Ask => "default",
            Permission::Edit => "acceptEdits",
            Permission::Bypass => "bypassPermissions",
        };
        let invocation = Invocation::default()
            .args(["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", mode])
            .option("--model", call.model)
            .option("--resume", call.resume)
            .args(call.extra.iter().map(String::as_str))
            .env("DISABLE_AUTOUPDATER", "1");
        // Without it Claude Code refuses to bypass permissions as root.
        if call.as_root && call.permission == Permission::Bypass {
            invocation.env("IS_SANDBOX", "1")
        } else {
            invocation
        }
    }

    fn read(&self, event: &Value, transcript: &mut Transcript) {
        match text(event, "/type") {
            "system" if text(event, "/subtype") == "init" => transcript.set_session(text(event, "/session_id")),
            "assistant" => list(event, "/message/content").for_each(|part| match text(part, "/type") {
                "text" => transcript.message(text(part, "/text")),
                "tool_use" => transcript.note(&tool(part)),
                _ => {}
            }),
            "result" => result(event, transcript),
            _ => {}
        }
    }
}

/// The last line of the output. `subtype` can be `success` although `is_error` is true, with any exit code.
fn result(event: &Value, transcript: &mut Transcript) {
    let usage = event.get("usage").unwrap_or(&Value::Null);
    // Tokens from the cache are reported separately, but they are input tokens too.
    let read = ["/input_tokens", "/cache_creation_input_tokens", "/cache_read_input_tokens"];
    transcript.set_usage(
        read.iter().filter_map(|name| count(usage, name)).reduce(u64::saturating_add),
        count(usage, "/output_tokens"),
        event.get("total_cost_usd").and_then(Value::as_f64),
    );
    let answer = text(event, "/result");
    if event.get("is_error").and_then(Value::as_bool) == Some(false) && text(event, "/subtype") == "success" {
        transcript.set_session(text(event, "/session_id"));
        transcript.end(Ending::Success { answer: Some(answer) });
        return;
    }
    let errors: Vec<&str> = list(event, "/errors").filter_map(Value::as_str).collect();
    let message = if answer.is_empty() { errors.join("; ") } else { answer.to_owned() };
    let refusal = if text(event, "/stop_reason") == "refusal" {
        Refusal::Model
    } else if message.starts_with("No conversation found") {
        Refusal::Session
    } else {
        Refusal::No
    };
    let message = if message.is_empty() { text(event, "/subtype").to_owned() } else { message };
    transcript.end(Ending::Failure { message: &message, refusal });
}

fn tool(part: &Value) -> String {
    let input = part.get("input").unwrap_or(&Value::Null);
    let detail = ["/command", "/file_path", "/path", "/pattern", "/url", "/description"]
        .into_iter()
        .map(|name| text(input, name))
        .find(|detail| !detail.is_empty())
        .unwrap_or_default();
    format!("[{}] {}", text(part, "/name"), one_line(detail))
}
