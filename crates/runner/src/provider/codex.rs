//! Codex CLI (`codex`), checked against 0.169.

use serde_json::Value;

use super::transcript::{Ending, Refusal, Transcript, count, one_line, text};
use super::{Call, Invocation, Permission};

pub(super) fn invocation(call: &Call<'_>) -> Invocation {
    let sandbox: &[&str] = match call.permission {
        Permission::Ask => &["--sandbox", "read-only"],
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

pub(super) fn read(event: &Value, transcript: &mut Transcript) {
    match text(event, "/type") {
        "thread.started" => transcript.session(text(event, "/thread_id")),
        "item.started" if text(event, "/item/type") == "command_execution" => {
            transcript.notes(&format!("[command] {}", one_line(text(event, "/item/command"))));
        }
        "item.completed" => item(event, transcript),
        "error" => transcript.notes(&format!("[error] {}", one_line(text(event, "/message")))),
        "turn.completed" => {
            transcript.used(count(event, "/usage/input_tokens"), count(event, "/usage/output_tokens"), None);
            transcript.ends(Ending::Success { answer: None });
        }
        "turn.failed" => {
            let message = text(event, "/error/message");
            let refusal = if message.contains("content_filter") { Refusal::Model } else { Refusal::No };
            transcript.ends(Ending::Failure { message, refusal });
        }
        _ => {}
    }
}

fn item(event: &Value, transcript: &mut Transcript) {
    match text(event, "/item/type") {
        "agent_message" => transcript.says(text(event, "/item/text")),
        "file_change" => transcript.notes("[files] changed"),
        // Warnings come as items of this type, and the turn may well succeed.
        "error" => transcript.notes(&format!("[warning] {}", one_line(text(event, "/item/message")))),
        _ => {}
    }
}

/// What it prints when the session to go on with is not there; no JSON comes then.
pub(super) fn lost_session(stderr: &str) -> bool {
    stderr.contains("no rollout found for thread") || stderr.contains("thread/resume failed")
}
