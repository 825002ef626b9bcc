//! Claude Code (`claude`), checked against 2.1.

use std::collections::BTreeMap;

use ensemble_types::runs::Permission;
use ensemble_types::time::Timestamp;
use serde_json::Value;

use super::agent::{Agent, Call, Invocation};
use super::costs::repeats_costs;
use super::excerpt::one_line;
use super::json::{count, list, text};
use super::sign_in::{Check, of_claude};
use super::transcript::{Ending, Refusal, Transcript};

/// The `claude` program.
pub(super) struct Claude;

impl Agent for Claude {
    fn inherits(&self) -> &'static [&'static str] {
        // The last ones are of Amazon Bedrock, Google Vertex AI and Microsoft Foundry.
        &[
            "ANTHROPIC_*",
            "CLAUDE_*",
            "AWS_*",
            "AZURE_*",
            "CLOUDSDK_*",
            "CLOUD_ML_REGION",
            "GCLOUD_PROJECT",
            "GOOGLE_*",
            "VERTEX_*",
        ]
    }

    fn sign_in(&self, _: &BTreeMap<String, String>, _: &[String]) -> Check {
        Check::Ask(&["auth", "status"], of_claude)
    }

    fn invocation(&self, call: &Call<'_>) -> Invocation {
        let mode = match call.permission {
            Permission::Plan => "plan",
            Permission::Ask => "default",
            Permission::Edit => "acceptEdits",
            Permission::Bypass => "bypassPermissions",
        };
        let max_cost = call.costs.on_the_counter(call.version.is_some_and(repeats_costs));
        let invocation = Invocation::default()
            .args(["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"])
            .args(["--permission-mode", mode])
            .each("--allowedTools=", call.allowed_tools)
            .option("--model", call.model)
            .option("--resume", call.resume)
            .option("--max-budget-usd", max_cost.map(|max| max.to_string()).as_deref())
            .args(call.extra.iter().map(String::as_str))
            .env("DISABLE_AUTOUPDATER", "1");
        // Without it Claude Code refuses to bypass permissions as root.
        if call.as_root && call.permission == Permission::Bypass {
            invocation.env("IS_SANDBOX", "1")
        } else {
            invocation
        }
    }

    fn takes_tools(&self) -> bool {
        true
    }

    fn read(&self, event: &Value, transcript: &mut Transcript) {
        match text(event, "/type") {
            "system" if text(event, "/subtype") == "init" => {
                transcript.set_session(text(event, "/session_id"));
                transcript.set_repeats_costs(repeats_costs(text(event, "/claude_code_version")));
            }
            // Only with a subscription. With a key there is no time.
            "rate_limit_event" => {
                let rejected = text(event, "/rate_limit_info/status") == "rejected";
                let ends = event.pointer("/rate_limit_info/resetsAt").and_then(Value::as_i64);
                transcript.set_limit_end(ends.filter(|_| rejected).map(Timestamp::from_unix_seconds));
            }
            "stream_event" if text(event, "/event/delta/type") == "text_delta" => {
                transcript.message_delta(text(event, "/event/delta/text"));
            }
            // Text that was streamed comes again as a whole. The text of a sub-agent is not streamed.
            "assistant" => list(event, "/message/content").for_each(|part| match text(part, "/type") {
                "text" if transcript.is_streaming() => transcript.end_message(),
                "text" => transcript.message(text(part, "/text")),
                "tool_use" => transcript.note(&tool(part)),
                _ => {}
            }),
            "user" => {
                list(event, "/message/content").filter(|part| text(part, "/type") == "tool_result").for_each(|part| {
                    let texts: Vec<&str> = list(part, "/content").map(|piece| text(piece, "/text")).collect();
                    let whole = text(part, "/content");
                    transcript.tool_result(if texts.is_empty() { whole.to_owned() } else { texts.join("\n") }.as_str());
                })
            }
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
    for denial in list(event, "/permission_denials") {
        let input = denial.get("tool_input").unwrap_or(&Value::Null);
        transcript.deny(text(denial, "/tool_name"), detail(input));
    }
    let answer = text(event, "/result");
    if asked_no_model(event) {
        let message = format!("The program took the prompt for one of its commands and asked no model. {answer}");
        return transcript.end(Ending::Failure { message: message.trim(), refusal: Refusal::No });
    }
    if event.get("is_error").and_then(Value::as_bool) == Some(false) && text(event, "/subtype") == "success" {
        transcript.set_session(text(event, "/session_id"));
        transcript.end(Ending::Success { answer: Some(answer) });
        return;
    }
    let errors: Vec<&str> = list(event, "/errors").filter_map(Value::as_str).collect();
    let message = if answer.is_empty() { errors.join("; ") } else { answer.to_owned() };
    let refusal = if text(event, "/stop_reason") == "refusal" {
        Refusal::Model
    } else if count(event, "/api_error_status") == Some(429) {
        Refusal::Limit
    } else if text(event, "/subtype") == "error_max_budget_usd" {
        Refusal::Cost
    } else if message.starts_with("No conversation found") {
        Refusal::Session
    } else if message.contains("Please run /login") {
        Refusal::SignIn
    } else {
        Refusal::No
    };
    let message = if message.is_empty() { text(event, "/subtype").to_owned() } else { message };
    transcript.end(Ending::Failure { message: &message, refusal });
}

/// A prompt that the program takes for one of its commands ends at once: no turn, no tokens of any model.
fn asked_no_model(event: &Value) -> bool {
    let is_unused = event.get("modelUsage").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty);
    let is_good = event.get("is_error").and_then(Value::as_bool) == Some(false) && text(event, "/subtype") == "success";
    is_good && is_unused && count(event, "/num_turns") == Some(0)
}

fn tool(part: &Value) -> String {
    let input = part.get("input").unwrap_or(&Value::Null);
    format!("[{}] {}", text(part, "/name"), one_line(detail(input)))
}

/// What a tool was called with, in a few words.
fn detail(input: &Value) -> &str {
    ["/command", "/file_path", "/path", "/pattern", "/url", "/description"]
        .into_iter()
        .map(|name| text(input, name))
        .find(|detail| !detail.is_empty())
        .unwrap_or_default()
}
