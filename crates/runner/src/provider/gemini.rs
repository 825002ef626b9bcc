//! Gemini CLI (`gemini`), checked against 0.61.

use serde_json::Value;

use super::transcript::{Ending, Refusal, Transcript, count, one_line, text};
use super::{Call, Invocation, Permission};

/// Without `-p` it takes standard input as the whole prompt.
pub(super) fn invocation(call: &Call<'_>) -> Invocation {
    let mode = match call.permission {
        Permission::Ask => "default",
        Permission::Edit => "auto_edit",
        Permission::Bypass => "yolo",
    };
    Invocation::default()
        .args(["--output-format", "stream-json", "--approval-mode", mode])
        .option("-m", call.model)
        .option("--resume", call.resume)
        .args(call.extra.iter().map(String::as_str))
        // Which directories are trusted is decided by the runner's roots; it cannot be asked of anybody.
        .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
}

pub(super) fn read(event: &Value, transcript: &mut Transcript) {
    match text(event, "/type") {
        "init" => transcript.session(text(event, "/session_id")),
        "message" if text(event, "/role") == "assistant" => transcript.goes_on_saying(text(event, "/content")),
        "tool_use" => {
            let detail = ["/command", "/file_path", "/path", "/pattern", "/description"]
                .into_iter()
                .filter_map(|name| event.pointer(&format!("/parameters{name}")).and_then(Value::as_str))
                .next()
                .unwrap_or_default();
            transcript.notes(&format!("[{}] {}", text(event, "/tool_name"), one_line(detail)));
        }
        "error" => transcript.warns(text(event, "/message")),
        "result" => result(event, transcript),
        _ => {}
    }
}

/// The last line. A blocked answer has `status` error here, and still exit code 0.
fn result(event: &Value, transcript: &mut Transcript) {
    transcript.used(count(event, "/stats/input_tokens"), count(event, "/stats/output_tokens"), None);
    if text(event, "/status") == "success" {
        transcript.ends(Ending::Success { answer: None });
        return;
    }
    let own = text(event, "/error/message").to_owned();
    let message = if own.is_empty() { transcript.last_warning().to_owned() } else { own };
    let refusal = if BLOCKED.iter().any(|sign| message.contains(sign)) { Refusal::Model } else { Refusal::No };
    transcript.ends(Ending::Failure { message: &message, refusal });
}

/// In its words for an answer that the model's filters withheld.
const BLOCKED: &[&str] = &[
    "response was blocked",
    "stopped due to safety",
    "stopped due to prohibited",
    "stopped due to image safety",
    "stopped due to recitation",
    "stopped due to forbidden",
    "stopped due to sensitive",
];

/// What it prints when the session to go on with is not there; no JSON comes then.
pub(super) fn lost_session(stderr: &str) -> bool {
    stderr.contains("Error resuming session")
}
