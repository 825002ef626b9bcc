//! Codex CLI (`codex`), checked against 0.169.

use std::collections::BTreeMap;

use ensemble_types::runs::Permission;
use serde_json::Value;

use super::agent::{Agent, Call, Invocation};
use super::excerpt::one_line;
use super::json::{count, text};
use super::sign_in::{Check, SignIn, has_other_model, of_codex};
use super::transcript::{Ending, Refusal, Transcript};

/// The `codex` program.
pub(super) struct Codex;

impl Agent for Codex {
    fn inherits(&self) -> &'static [&'static str] {
        // The last ones are of Amazon Bedrock and Azure.
        &["OPENAI_*", "CODEX_*", "AWS_*", "AZURE_*"]
    }

    fn sign_in(&self, environment: &BTreeMap<String, String>, args: &[String]) -> Check {
        // `codex exec` uses this variable, and not OPENAI_API_KEY.
        let has_key = environment.get("CODEX_API_KEY").is_some_and(|key| !key.is_empty());
        if has_other_model(environment, args) {
            Check::Known(SignIn::Unknown)
        } else if has_key {
            Check::Known(SignIn::Yes)
        } else {
            Check::Ask(&["login", "status"], of_codex)
        }
    }

    fn invocation(&self, call: &Call<'_>) -> Invocation {
        let sandbox: &[&str] = match call.permission {
            Permission::Plan | Permission::Ask => &["--sandbox", "read-only"],
            Permission::Edit => &["--sandbox", "workspace-write"],
            Permission::Bypass => &["--dangerously-bypass-approvals-and-sandbox"],
        };
        let resume: Vec<&str> = call.resume.map(|session| ["resume", session]).into_iter().flatten().collect();
        Invocation::default()
            .args(["exec", "--json", "--skip-git-repo-check"])
            .args(sandbox.iter().copied())
            .option("-m", call.model)
            .args(call.extra.iter().map(String::as_str))
            .args(resume)
            .arg("-")
    }

    fn read(&self, event: &Value, transcript: &mut Transcript) {
        match text(event, "/type") {
            "thread.started" => transcript.set_session(text(event, "/thread_id")),
            "item.started" if text(event, "/item/type") == "command_execution" => {
                transcript.note(&format!("[command] {}", one_line(text(event, "/item/command"))));
            }
            "item.completed" => item(event, transcript),
            "error" => transcript.note(&format!("[error] {}", one_line(text(event, "/message")))),
            "turn.completed" => {
                transcript.set_usage(count(event, "/usage/input_tokens"), count(event, "/usage/output_tokens"), None);
                transcript.end(Ending::Success { answer: None });
            }
            "turn.failed" => {
                let message = text(event, "/error/message");
                let refusal = if message.contains("content_filter") {
                    Refusal::Model
                } else if AT_LIMIT.iter().any(|beginning| message.starts_with(beginning)) {
                    Refusal::Limit
                } else {
                    Refusal::No
                };
                transcript.end(Ending::Failure { message, refusal });
            }
            _ => {}
        }
    }

    /// Codex prints this instead of JSON when the session to resume does not exist.
    fn lost_session(&self, stderr: &str) -> bool {
        stderr.contains("no rollout found for thread") || stderr.contains("thread/resume failed")
    }
}

/// How the errors of a turn begin that ended at a limit of use: that of a subscription, of an account's money, and of requests after
/// all retries. `codex exec` prints the sentence and no code. The time in it has no time zone.
const AT_LIMIT: &[&str] = &[
    "You’ve hit your usage limit",
    "You've hit your usage limit",
    "Quota exceeded.",
    "Your workspace is out of credits",
    "You hit your spend cap",
    "exceeded retry limit, last status: 429",
];

fn item(event: &Value, transcript: &mut Transcript) {
    match text(event, "/item/type") {
        "agent_message" => transcript.message(text(event, "/item/text")),
        "command_execution" => {
            if text(event, "/item/status") == "declined" {
                transcript.deny("command", text(event, "/item/command"));
            }
            transcript.tool_result(text(event, "/item/aggregated_output"));
        }
        "file_change" => transcript.note("[files] changed"),
        // Warnings have this item type, and the turn can still succeed.
        "error" => transcript.note(&format!("[warning] {}", one_line(text(event, "/item/message")))),
        _ => {}
    }
}
