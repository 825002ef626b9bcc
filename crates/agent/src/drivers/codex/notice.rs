//! Notifications of the app server: turns, texts, limits and errors.

use ensemble_protocol::transcript::body::{ContextUse, Plan, PlanEntry, Usage};
use ensemble_protocol::transcript::words::{ErrorCode, PlanPriority, PlanStatus, StopReason};
use ensemble_types::time::Timestamp;
use serde_json::Value;

use super::Codex;
use crate::event::{Event, PartKind, StateChange};
use crate::json::{count, is_true, list, some, text};

/// The steps of a plan.
const MOST_STEPS: usize = 256;

impl Codex {
    pub(super) fn notice(&mut self, method: &str, params: &Value) {
        if method == "account/rateLimits/updated" {
            self.limits(params);
            return;
        }
        let thread = text(params, "/threadId");
        if self.thread.as_deref() != Some(thread) {
            // A sub-agent has its own thread. Its requests are shown, its texts are not.
            if method == "serverRequest/resolved" && self.children.contains(thread) {
                self.resolved(params);
            }
            return;
        }
        let item = params.get("item").unwrap_or(&Value::Null);
        let key = text(params, "/itemId");
        match method {
            "turn/started" => self.began(text(params, "/turn/id")),
            "turn/completed" if self.turn.as_deref() == some(params, "/turn/id") => self.completed(params),
            "item/started" if self.core.turn.is_some() => self.item(item, false),
            "item/completed" if self.core.turn.is_some() => self.item(item, true),
            // A command that has outlived its turn has ended.
            "item/completed" if !self.still_running.is_empty() => self.list_terminals(),
            "item/agentMessage/delta" | "item/plan/delta" if self.core.turn.is_some() && self.is_whole(key) => {
                self.core.delta(key, PartKind::Text, text(params, "/delta"));
            }
            "item/reasoning/summaryTextDelta" if self.core.turn.is_some() && self.is_whole(key) => {
                self.core.delta(key, PartKind::Thought, text(params, "/delta"));
            }
            "item/commandExecution/outputDelta" => self.core.output(key, text(params, "/delta")),
            "item/fileChange/patchUpdated" => self.patched(params),
            "turn/plan/updated" => self.core.say(Event::Plan(plan(params))),
            "thread/tokenUsage/updated" => self.tokens(params),
            "serverRequest/resolved" => self.resolved(params),
            "error" if is_true(params, "/willRetry") => {
                self.core.retry(code(params.pointer("/error/codexErrorInfo")), text(params, "/error/message"));
            }
            _ => {}
        }
    }

    fn resolved(&mut self, params: &Value) {
        let id = params.get("requestId").cloned().unwrap_or_default();
        self.core.withdraw_agents(&id);
    }

    pub(super) fn completed(&mut self, params: &Value) {
        let stop = match text(params, "/turn/status") {
            "completed" => StopReason::EndTurn,
            "interrupted" => StopReason::Cancelled,
            _ => {
                let info = params.pointer("/turn/error/codexErrorInfo");
                let code = code(info);
                let retry_at = self.retry_at.filter(|_| code == ErrorCode::Quota);
                let said = some(params, "/turn/error/message").unwrap_or("The turn failed.").to_owned();
                self.core.fail(code.clone(), &said, retry_at);
                match (info.and_then(Value::as_str), code) {
                    (Some("cyberPolicy" | "misalignmentPolicyViolation"), _) => StopReason::Refusal,
                    _ if said.contains("content_filter") => StopReason::Refusal,
                    (Some("sessionBudgetExceeded"), _) | (_, ErrorCode::Quota) => StopReason::Limit,
                    _ => StopReason::Error,
                }
            }
        };
        let usage = self.total.map(|total| difference(total, self.before.unwrap_or_default()));
        self.turn = None;
        self.changes.clear();
        let is_interrupted = stop == StopReason::Cancelled;
        self.core.end_turn(stop, usage, None);
        if is_interrupted { self.end_terminals() } else { self.list_terminals() }
    }

    fn tokens(&mut self, params: &Value) {
        let total = |name: &str| count(params, &format!("/tokenUsage/total/{name}"));
        if let (Some(input_tokens), Some(output_tokens)) = (total("inputTokens"), total("outputTokens")) {
            self.total = Some(Usage {
                input_tokens,
                output_tokens,
                thought_tokens: total("reasoningOutputTokens"),
                cached_read_tokens: total("cachedInputTokens"),
                cached_write_tokens: None,
            });
        }
        let used = count(params, "/tokenUsage/last/totalTokens");
        if let (Some(used), Some(size)) = (used, count(params, "/tokenUsage/modelContextWindow")) {
            self.core.state(StateChange { context: Some(ContextUse { used, size }), ..StateChange::default() });
        }
    }

    fn limits(&mut self, params: &Value) {
        let reached = ["primary", "secondary"].into_iter().filter_map(|name| {
            let limit = params.pointer(&format!("/rateLimits/{name}"))?;
            let used = limit.get("usedPercent").and_then(Value::as_f64)?;
            let ends = limit.get("resetsAt").and_then(Value::as_i64)?;
            (used >= 100.0).then_some(Timestamp::from_unix_seconds(ends))
        });
        self.retry_at = reached.max();
    }
}

/// What the program calls an error: a word, or a word with an HTTP status.
pub(super) fn code(info: Option<&Value>) -> ErrorCode {
    let word = info.and_then(Value::as_str);
    let inner = info.and_then(Value::as_object).and_then(|fields| fields.values().next());
    let status = inner.and_then(|inner| count(inner, "/httpStatusCode"));
    match (word, status) {
        (Some("unauthorized"), _) | (_, Some(401 | 403)) => ErrorCode::Login,
        (Some("usageLimitExceeded" | "rateLimitExceeded"), _) | (_, Some(429)) => ErrorCode::Quota,
        (Some("serverOverloaded" | "flexUnavailable" | "policyCapacityUnavailable"), _) | (_, Some(503 | 529)) => {
            ErrorCode::Overloaded
        }
        (Some("contextWindowExceeded"), _) => ErrorCode::Context,
        _ => ErrorCode::Unknown,
    }
}

fn plan(params: &Value) -> Plan {
    let entries = list(params, "/plan").take(MOST_STEPS).map(|step| PlanEntry {
        content: text(step, "/step").to_owned(),
        priority: PlanPriority::Medium,
        status: match text(step, "/status") {
            "inProgress" => PlanStatus::InProgress,
            other => PlanStatus::of(other),
        },
    });
    Plan { entries: entries.collect() }
}

fn difference(now: Usage, before: Usage) -> Usage {
    let less = |now: Option<u64>, before: Option<u64>| now.map(|now| now.saturating_sub(before.unwrap_or(0)));
    Usage {
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        thought_tokens: less(now.thought_tokens, before.thought_tokens),
        cached_read_tokens: less(now.cached_read_tokens, before.cached_read_tokens),
        cached_write_tokens: None,
    }
}
