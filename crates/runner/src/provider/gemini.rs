//! Gemini CLI (`gemini`), checked against 0.61.

use std::collections::BTreeMap;

use ensemble_types::runs::Permission;
use serde_json::Value;

use super::agent::{Agent, Call, Invocation};
use super::excerpt::one_line;
use super::json::{count, text};
use super::sign_in::{Check, of_gemini};
use super::transcript::{Ending, Refusal, Transcript};

/// The `gemini` program.
pub(super) struct Gemini;

impl Agent for Gemini {
    fn inherits(&self) -> &'static [&'static str] {
        &["GEMINI_*", "GOOGLE_*", "CLOUDSDK_*"]
    }

    fn sign_in(&self, environment: &BTreeMap<String, String>, _: &[String]) -> Check {
        of_gemini(environment)
    }

    /// Without `-p` Gemini reads the whole prompt from standard input.
    fn invocation(&self, call: &Call<'_>) -> Invocation {
        let mode = match call.permission {
            Permission::Plan => "plan",
            Permission::Ask => "default",
            Permission::Edit => "auto_edit",
            Permission::Bypass => "yolo",
        };
        Invocation::default()
            .args(["--output-format", "stream-json", "--approval-mode", mode])
            .each("--allowed-tools=", call.allowed_tools)
            .option("-m", call.model)
            .option("--resume", call.resume)
            .args(call.extra.iter().map(String::as_str))
            // The runner's roots decide which directories are trusted, because a task cannot answer a question.
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
    }

    fn takes_tools(&self) -> bool {
        true
    }

    fn read(&self, event: &Value, transcript: &mut Transcript) {
        match text(event, "/type") {
            "init" => transcript.set_session(text(event, "/session_id")),
            "message" if text(event, "/role") == "assistant" => transcript.message_delta(text(event, "/content")),
            "tool_use" => {
                let detail = ["/command", "/file_path", "/path", "/pattern", "/description"]
                    .into_iter()
                    .filter_map(|name| event.pointer(&format!("/parameters{name}")).and_then(Value::as_str))
                    .next()
                    .unwrap_or_default();
                let tool = text(event, "/tool_name");
                transcript.note(&format!("[{tool}] {}", one_line(detail)));
                transcript.call(text(event, "/tool_id"), tool, detail);
            }
            "tool_result" => {
                // Gemini does not even register a tool that it may not use without asking.
                if text(event, "/error/type") == "tool_not_registered" {
                    transcript.deny_call(text(event, "/tool_id"));
                }
                transcript.tool_result(text(event, "/output"));
            }
            "error" => transcript.warn(text(event, "/message")),
            "result" => result(event, transcript),
            _ => {}
        }
    }

    fn exits_at_limit(&self, code: i32) -> bool {
        code == AT_LIMIT
    }

    /// Gemini prints this instead of JSON when the session to resume does not exist.
    fn lost_session(&self, stderr: &str) -> bool {
        stderr.contains("Error resuming session")
    }
}

/// Gemini exits with the HTTP status of the error that ended it: 429, of which an exit code keeps eight bits.
const AT_LIMIT: i32 = 429 & 0xFF;

/// The last line of the output. A blocked answer has the `status` error, but still exit code 0.
fn result(event: &Value, transcript: &mut Transcript) {
    transcript.set_usage(count(event, "/stats/input_tokens"), count(event, "/stats/output_tokens"), None);
    if text(event, "/status") == "success" {
        transcript.end(Ending::Success { answer: None });
        return;
    }
    let own = text(event, "/error/message").to_owned();
    let message = if own.is_empty() { transcript.last_warning().to_owned() } else { own };
    let refusal = if BLOCKED.iter().any(|sign| message.contains(sign)) { Refusal::Model } else { Refusal::No };
    transcript.end(Ending::Failure { message: &message, refusal });
}

/// The messages for an answer that the model's filters withheld.
const BLOCKED: &[&str] = &[
    "response was blocked",
    "stopped due to safety",
    "stopped due to prohibited",
    "stopped due to image safety",
    "stopped due to recitation",
    "stopped due to forbidden",
    "stopped due to sensitive",
];
