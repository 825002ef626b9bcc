//! The end of a turn: why, what it used and what it cost.

use ensemble_protocol::transcript::body::Usage;
use ensemble_protocol::transcript::words::{ErrorCode, StopReason};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use super::tool::about;
use super::{Claude, Order};
use crate::command::{Exit, Start};
use crate::event::Event;
use crate::json::{count, is_true, list, some, text};

/// What is kept between turns. The program counts what it has cost since it began.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// What was counted at the end of the turn before.
    counted: f64,
    is_known: bool,
    /// Of the last limit that was reached.
    retry_at: Option<Timestamp>,
    /// What an `assistant` line said about an error.
    error: Option<String>,
}

impl Costs {
    /// Since 2.1.277, a resumed conversation continues to count from its old sum. Before, it began at zero.
    pub(super) fn version(&mut self, version: &str, start: &Start) {
        if !self.is_known && !version.is_empty() {
            self.is_known = true;
            if start.resume.is_some() && continues_to_count(version) {
                self.counted = start.cost_before;
            }
        }
    }

    pub(super) fn limit(&mut self, event: &Value) {
        let is_reached = text(event, "/rate_limit_info/status") == "rejected";
        let ends = event.pointer("/rate_limit_info/resetsAt").and_then(Value::as_i64);
        self.retry_at = ends.filter(|_| is_reached).map(Timestamp::from_unix_seconds);
    }

    pub(super) fn error(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    /// The cost of the turn: what was counted since the end of the one before.
    fn turn(&mut self, total: Option<f64>) -> Option<f64> {
        let total = total.filter(|total| total.is_finite() && *total >= 0.0)?;
        let cost = (total - self.counted).max(0.0);
        self.counted = total;
        Some(cost)
    }
}

/// The first version whose costs continue from those of the conversation that it resumes.
fn continues_to_count(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    [numbers.next(), numbers.next(), numbers.next()].map(|number| number.flatten().unwrap_or(0_u32)) >= [2, 1, 277]
}

/// What the program's own counter may reach.
pub(super) fn budget(start: &Start) -> Option<f64> {
    let unattended = start.unattended()?;
    let continues = start.resume.is_some() && unattended.version.as_deref().is_some_and(continues_to_count);
    unattended.max_cost_usd.map(|most| if continues { most + start.cost_before } else { most })
}

/// The code for what the program calls an error, and the HTTP status behind it.
pub(super) fn code(error: &str, status: Option<u64>) -> ErrorCode {
    match (error, status) {
        ("authentication_failed" | "oauth_org_not_allowed", _) | (_, Some(401 | 403)) => ErrorCode::Login,
        ("rate_limit" | "billing_error", _) | (_, Some(429)) => ErrorCode::Quota,
        ("overloaded" | "server_error", _) | (_, Some(503 | 529)) => ErrorCode::Overloaded,
        _ => ErrorCode::Unknown,
    }
}

impl Claude {
    pub(super) fn result(&mut self, event: &Value) {
        let errors: Vec<&str> = list(event, "/errors").filter_map(Value::as_str).collect();
        let said = some(event, "/result").map_or_else(|| errors.join("; "), str::to_owned);
        let subtype = text(event, "/subtype");
        let is_error = is_true(event, "/is_error") || subtype != "success";
        if is_error && said.starts_with("No conversation found") {
            self.core.resume_failed(&said);
            return;
        }
        self.begin();
        let is_unattended = self.start.unattended().is_some();
        if is_unattended {
            self.denied(event);
        }
        let cost = self.costs.turn(event.get("total_cost_usd").and_then(Value::as_f64));
        let error = self.costs.error.take();
        let stop = match (subtype, text(event, "/terminal_reason"), text(event, "/stop_reason")) {
            (_, reason, _) if reason.starts_with("aborted") => StopReason::Cancelled,
            ("error_max_turns", ..) => {
                if is_unattended {
                    self.core.fail(ErrorCode::Unknown, if said.is_empty() { subtype } else { &said }, None);
                }
                StopReason::MaxTokens
            }
            ("error_max_budget_usd", ..) => StopReason::Limit,
            (_, _, "refusal") => StopReason::Refusal,
            _ if !is_error && is_unattended && asked_no_model(event) => {
                let text = "The program took the prompt for one of its commands and asked no model.";
                self.core.fail(ErrorCode::Unknown, format!("{text} {said}").trim(), None);
                StopReason::Error
            }
            (_, _, "max_tokens") if !is_error => StopReason::MaxTokens,
            _ if !is_error => StopReason::EndTurn,
            (_, reason, _) => {
                let status = count(event, "/api_error_status");
                let code = match code(error.as_deref().unwrap_or_default(), status) {
                    _ if reason == "prompt_too_long" => ErrorCode::Context,
                    ErrorCode::Unknown if said.contains("Please run /login") => ErrorCode::Login,
                    ErrorCode::Unknown if said.starts_with("Credit balance is too low") && !is_unattended => {
                        ErrorCode::Quota
                    }
                    // A task waits for a limit, and not for money.
                    ErrorCode::Quota if is_unattended && status != Some(429) => ErrorCode::Unknown,
                    code => code,
                };
                let retry_at = self.costs.retry_at.take().filter(|_| code == ErrorCode::Quota);
                let stop = if code == ErrorCode::Quota { StopReason::Limit } else { StopReason::Error };
                self.core.fail(code, if said.is_empty() { subtype } else { &said }, retry_at);
                stop
            }
        };
        if is_unattended && matches!(stop, StopReason::EndTurn | StopReason::Refusal | StopReason::MaxTokens) {
            self.core.say(Event::Answer(said));
        }
        self.core.end_turn(stop, usage(event), cost);
        self.order(Order::Context, json!({}));
    }

    /// What it refused itself.
    fn denied(&mut self, event: &Value) {
        for denial in list(event, "/permission_denials") {
            let input = denial.get("tool_input").unwrap_or(&Value::Null);
            let detail = about(input).unwrap_or_default().to_owned();
            self.core.say(Event::Denied { tool: text(denial, "/tool_name").to_owned(), detail });
        }
    }

    /// The process ended before it was ready: the conversation to resume may be gone.
    pub(super) fn lost(&mut self, exit: &Exit) {
        if let Some(line) = exit.stderr.lines().find(|line| line.contains("No conversation found")) {
            self.core.resume_failed(line.trim());
        }
    }
}

/// A prompt that the program takes for one of its commands ends at once: no turn, no tokens of any model.
fn asked_no_model(event: &Value) -> bool {
    let is_unused = event.get("modelUsage").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty);
    is_unused && count(event, "/num_turns") == Some(0)
}

/// Tokens from the cache are counted apart, but the model has read them too.
fn usage(event: &Value) -> Option<Usage> {
    let usage = event.get("usage")?;
    let read = count(usage, "/cache_read_input_tokens");
    let written = count(usage, "/cache_creation_input_tokens");
    let input = count(usage, "/input_tokens")?;
    Some(Usage {
        input_tokens: input.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0)),
        output_tokens: count(usage, "/output_tokens")?,
        thought_tokens: None,
        cached_read_tokens: read,
        cached_write_tokens: written,
    })
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::transcript::words::Mode;

    use super::*;
    use crate::command::Attended;

    fn start(resume: bool) -> Start {
        Start {
            directory: "/w".to_owned(),
            session_id: "s".to_owned(),
            mode: Mode::Ask,
            model: None,
            resume: resume.then(|| "s".to_owned()),
            fork: false,
            cost_before: 0.5,
            as_root: false,
            checkpoint: None,
            mcp_servers: Vec::new(),
            private: None,
            attended: Attended::People,
        }
    }

    #[test]
    fn a_turn_costs_what_was_counted_since_the_one_before() {
        for (version, resumed, totals, costs) in [
            ("2.1.197", false, [0.25, 0.75], [0.25, 0.5]),
            ("2.1.197", true, [0.25, 0.75], [0.25, 0.5]),
            ("2.1.330", false, [0.25, 0.75], [0.25, 0.5]),
            ("2.1.330", true, [0.75, 1.0], [0.25, 0.25]),
            ("", true, [0.25, 0.25], [0.25, 0.0]),
        ] {
            let mut counter = Costs::default();
            let found = totals.map(|total| {
                counter.version(version, &start(resumed));
                counter.turn(Some(total)).unwrap()
            });
            assert_eq!(found, costs, "{version}");
        }
        let mut counter = Costs::default();
        assert_eq!([counter.turn(None), counter.turn(Some(-1.0)), counter.turn(Some(f64::NAN))], [None; 3]);
    }
}
