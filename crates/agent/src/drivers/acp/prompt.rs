//! Prompts as content blocks, and the ends of turns.

use ensemble_protocol::transcript::body::{Attachment, Usage};
use ensemble_protocol::transcript::words::{ErrorCode, StopReason};
use serde_json::{Value, json};

use super::Acp;
use crate::command::{Prompt, Refused};
use crate::drivers::{Kind, rpc};
use crate::json::{count, text};

impl Acp {
    /// ACP's `ContentBlock`s, as far as the agent takes them.
    pub(super) fn blocks(&self, prompt: &Prompt) -> Result<Vec<Value>, Refused> {
        let mut blocks = vec![json!({"type": "text", "text": prompt.text})];
        for attachment in &prompt.attachments {
            blocks.push(match attachment {
                Attachment::Image { mime_type, data } if self.images => {
                    json!({"type": "image", "mimeType": mime_type, "data": data})
                }
                Attachment::Image { .. } => return Err(Refused::Unsupported("the agent takes no images")),
                Attachment::Resource { resource } if self.embeds => json!({"type": "resource", "resource": resource}),
                Attachment::Resource { resource } => {
                    json!({"type": "text", "text": format!("{}:\n{}", resource.uri, resource.text)})
                }
                Attachment::Newer => {
                    return Err(Refused::Unsupported("the prompt has an attachment of an unknown kind"));
                }
            });
        }
        Ok(blocks)
    }

    /// The answer to a prompt: the turn has ended.
    pub(super) fn ended(&mut self, result: &Value) {
        let stop = match text(result, "/stopReason") {
            "end_turn" if self.is_cancelled => StopReason::Cancelled,
            // An answer that the filters of its model have blocked is empty over its wire.
            "end_turn" if self.kind == Kind::Gemini && !self.is_answering && self.start.unattended().is_some() => {
                StopReason::Refusal
            }
            "end_turn" => StopReason::EndTurn,
            "cancelled" => StopReason::Cancelled,
            "refusal" => StopReason::Refusal,
            "max_turn_requests" => {
                if self.start.unattended().is_some() {
                    self.core.fail(
                        ErrorCode::Unknown,
                        "The agent has made as many requests as it may in one turn.",
                        None,
                    );
                }
                StopReason::MaxTokens
            }
            "max_tokens" => StopReason::MaxTokens,
            other => {
                let what = format!("The agent ended the turn for a reason that is not known: {other}");
                self.core.fail(ErrorCode::Unknown, &what, None);
                StopReason::Error
            }
        };
        let usage = ["/usage", "/_meta/quota/token_count", "/_meta/usage"].into_iter().find_map(|at| usage(result, at));
        self.finish(stop, usage);
    }

    pub(super) fn failed(&mut self, error: &Value) {
        let code = rpc::code(error);
        let stop = if code == ErrorCode::Quota { StopReason::Limit } else { StopReason::Error };
        self.core.fail(code, &rpc::reason(error), None);
        self.finish(stop, None);
    }

    fn finish(&mut self, stop: StopReason, usage: Option<Usage>) {
        let usage = usage.or(self.usage.take());
        // The cost is of the session; that of the turn is what was added.
        let cost = self.cost.map(|cost| (cost - self.counted.unwrap_or(0.0)).max(0.0));
        (self.counted, self.usage, self.is_cancelled) = (self.cost, None, false);
        self.core.end_turn(stop, usage, cost);
    }
}

/// Tokens in the names of ACP's `Usage`, or in those of gemini.
pub(super) fn usage(value: &Value, at: &str) -> Option<Usage> {
    let usage = value.pointer(at)?;
    let either = |names: [&str; 2]| names.into_iter().find_map(|name| count(usage, name));
    Some(Usage {
        input_tokens: either(["/inputTokens", "/input_tokens"])?,
        output_tokens: either(["/outputTokens", "/output_tokens"])?,
        thought_tokens: count(usage, "/thoughtTokens"),
        cached_read_tokens: count(usage, "/cachedReadTokens"),
        cached_write_tokens: count(usage, "/cachedWriteTokens"),
    })
}
