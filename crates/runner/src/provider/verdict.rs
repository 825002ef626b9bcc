//! The outcome of an attempt, from the exit of the program, its last output and the reason why it was stopped.

use std::time::{Duration, UNIX_EPOCH};

use ensemble_process::Exit;
use ensemble_types::leases::{FinishStatus, LeaseError, LeaseFinish};
use ensemble_types::runs::Provider;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;

use super::excerpt::excerpt;
use super::exits_at_limit;
use super::transcript::{Ended, MESSAGE_BYTES, Refusal, Transcript};
use crate::wake::wall_clock;

/// Why the runner stopped an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The service requested it.
    Cancel,
    Timeout,
    /// The runner is stopping.
    HandBack,
    /// The program has cost more than it may.
    Cost,
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: FinishStatus,
    pub(crate) error: Option<LeaseError>,
    pub(crate) exit_code: Option<i32>,
    /// When the provider can be used again, with the status quota.
    pub(crate) resume_at: Option<Timestamp>,
}

impl Outcome {
    /// An attempt that cannot be started on any machine.
    pub(crate) fn not_startable(code: &str, message: impl Into<String>) -> Self {
        Self { status: FinishStatus::Failed, error: error(code, message), exit_code: None, resume_at: None }
    }

    /// An attempt that cannot be started on this machine. Another one may be able to.
    pub(crate) fn refused(code: &str, message: impl Into<String>) -> Self {
        Self { status: FinishStatus::Refused, error: error(code, message), exit_code: None, resume_at: None }
    }

    /// An attempt that was not started because it was cancelled.
    pub(crate) fn cancelled() -> Self {
        Self { status: FinishStatus::Cancelled, error: None, exit_code: None, resume_at: None }
    }

    /// An attempt that is handed back because the runner ends. The next attempt resumes the agent's session.
    pub(crate) fn handed_back() -> Self {
        let message = "The runner on this machine ended before the attempt.";
        Self { status: FinishStatus::Cancelled, error: error("HANDED_BACK", message), exit_code: None, resume_at: None }
    }

    /// An attempt whose runner died.
    pub(crate) fn interrupted() -> Self {
        let message = "The runner on this machine stopped before the attempt had ended.";
        Self {
            status: FinishStatus::Cancelled,
            error: error("RUNNER_STOPPED", message),
            exit_code: None,
            resume_at: None,
        }
    }

    /// The report for the service.
    pub(crate) fn report(self, fence: i64, transcript: Option<&Transcript>) -> LeaseFinish {
        LeaseFinish {
            fence,
            status: self.status,
            resume_at: self.resume_at,
            exit_code: self.exit_code,
            output_summary: transcript.and_then(Transcript::answer).and_then(|answer| Blob::new(answer).ok()),
            provider_session_id: transcript.and_then(Transcript::session_id).and_then(|id| Text::new(id).ok()),
            usage: transcript.and_then(Transcript::usage),
            permission: None,
            permission_denials: transcript.and_then(Transcript::denials),
            changes: None,
            session_id: None,
            error: self.error,
        }
    }
}

/// Determines the outcome. `stderr` is the end of the program's standard error.
pub(crate) fn judge(
    provider: Provider,
    transcript: &Transcript,
    exit: Exit,
    stop: Option<Stop>,
    stderr: &str,
) -> Outcome {
    let exit_code = match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(_) | Exit::Unknown => None,
    };
    let outcome = |status, error| Outcome { status, error, exit_code, resume_at: None };
    let too_expensive =
        transcript.is_too_expensive() || is_refused(transcript, Refusal::Cost) || stop == Some(Stop::Cost);
    let succeeded = transcript.ended() == Some(&Ended::Success) && exit == Exit::Code(0);
    match stop {
        // The program finished before the order to stop reached it.
        _ if succeeded && !too_expensive => outcome(FinishStatus::Completed, None),
        Some(Stop::Cancel) => outcome(FinishStatus::Cancelled, None),
        Some(Stop::Timeout) => outcome(
            FinishStatus::Timeout,
            error(
                "TIMEOUT",
                "The attempt took longer than its timeout. Give it more time: --timeout, or `timeout` in the plan.",
            ),
        ),
        Some(Stop::HandBack) => outcome(FinishStatus::Cancelled, Outcome::handed_back().error),
        _ if too_expensive => {
            outcome(FinishStatus::Failed, error("COST_LIMIT_REACHED", cost_limit(provider, transcript)))
        }
        _ if is_refused(transcript, Refusal::Limit) || is_at_limit(provider, transcript, exit) => Outcome {
            resume_at: resume_at(transcript),
            ..outcome(FinishStatus::Quota, error("PROVIDER_LIMIT_REACHED", message(transcript)))
        },
        _ => outcome(FinishStatus::Failed, failure(provider, transcript, exit, stderr)),
    }
}

fn is_refused(transcript: &Transcript, because: Refusal) -> bool {
    matches!(transcript.ended(), Some(Ended::Failure { refusal, .. }) if *refusal == because)
}

fn is_at_limit(provider: Provider, transcript: &Transcript, exit: Exit) -> bool {
    let has_failed = matches!(transcript.ended(), Some(Ended::Failure { .. }));
    has_failed && matches!(exit, Exit::Code(code) if exits_at_limit(provider, code))
}

fn message(transcript: &Transcript) -> &str {
    if let Some(Ended::Failure { message, .. }) = transcript.ended() { message } else { "" }
}

fn cost_limit(provider: Provider, transcript: &Transcript) -> String {
    let cost = transcript.usage().and_then(|usage| usage.cost_usd);
    let cost = cost.map_or(String::new(), |cost| format!(" The attempt has cost ${cost:.4}."));
    format!("{provider} has cost as much as the task may.{cost}")
}

/// When the provider can be used again. Less far ahead than the interface allows, because clocks differ.
fn resume_at(transcript: &Transcript) -> Option<Timestamp> {
    const LONGEST: Duration = Duration::from_secs((7 * 24 - 1) * 60 * 60);
    let said = transcript.limit_ends()?;
    Some(said.min(now().plus(LONGEST)).max(Timestamp::from_unix_seconds(0)))
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(0).plus(wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn failure(provider: Provider, transcript: &Transcript, exit: Exit, stderr: &str) -> Option<LeaseError> {
    let stderr_tail = stderr_tail(stderr);
    match (transcript.ended(), exit) {
        (Some(Ended::Failure { message, refusal: Refusal::Model }), _) => error("REFUSED", message.as_str()),
        (Some(Ended::Failure { message, refusal: Refusal::SignIn }), _) => {
            error("PROVIDER_NOT_SIGNED_IN", message.as_str())
        }
        // Gemini's exit code when it has no way to sign in.
        (None, Exit::Code(41)) if provider == Provider::Gemini => {
            error("PROVIDER_NOT_SIGNED_IN", format!("gemini is not signed in.{stderr_tail}"))
        }
        (Some(Ended::Failure { message, .. }), _) if !message.is_empty() => error("MODEL_ERROR", message.as_str()),
        (_, Exit::Signal(signal)) => error(
            "CRASHED",
            format!("{provider} was ended by signal {signal}, which the runner did not send.{stderr_tail}"),
        ),
        (_, Exit::Unknown) => error("CRASHED", format!("The exit of {provider} was not observed.{stderr_tail}")),
        (None, Exit::Code(0)) => error("NO_RESULT", format!("{provider} ended without a result.{stderr_tail}")),
        (_, Exit::Code(code)) => {
            error("PROVIDER_FAILED", format!("{provider} ended with exit code {code}.{stderr_tail}"))
        }
    }
}

/// The end of standard error, as an addition to a sentence.
fn stderr_tail(stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() { String::new() } else { format!(" The end of its standard error: {}", excerpt(stderr, 1024)) }
}

fn error(code: &str, message: impl Into<String>) -> Option<LeaseError> {
    // The interface refuses U+0000 and messages that are too long.
    let message = excerpt(&message.into().replace('\0', "\u{fffd}"), MESSAGE_BYTES);
    Some(LeaseError { code: Text::new(code).ok()?, message: Text::new(message).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::read_line;

    fn claude(lines: &[&str]) -> Transcript {
        let mut transcript = Transcript::new();
        lines.iter().for_each(|line| read_line(Provider::Claude, line, &mut transcript));
        transcript
    }

    const SUCCESS: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok"}"#;
    const ERROR: &str = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 no"}"#;
    const REFUSED: &str =
        r#"{"type":"result","subtype":"success","is_error":true,"result":"no","stop_reason":"refusal"}"#;

    fn verdict(lines: &[&str], exit: Exit, stop: Option<Stop>) -> (FinishStatus, Option<String>) {
        let outcome = judge(Provider::Claude, &claude(lines), exit, stop, "");
        (outcome.status, outcome.error.map(|error| error.code.into_string()))
    }

    #[test]
    fn both_the_exit_code_and_the_last_line_must_be_good() {
        use FinishStatus::{Completed, Failed};
        assert_eq!(verdict(&[SUCCESS], Exit::Code(0), None), (Completed, None));
        for (lines, exit, code) in [
            (&[SUCCESS][..], Exit::Code(1), "PROVIDER_FAILED"),
            (&[SUCCESS], Exit::Signal(9), "CRASHED"),
            (&[ERROR], Exit::Code(0), "MODEL_ERROR"),
            (&[ERROR], Exit::Code(1), "MODEL_ERROR"),
            (&[REFUSED], Exit::Code(0), "REFUSED"),
            (&[], Exit::Code(0), "NO_RESULT"),
            (&[], Exit::Code(2), "PROVIDER_FAILED"),
            (&[], Exit::Signal(11), "CRASHED"),
            (&[], Exit::Unknown, "CRASHED"),
        ] {
            assert_eq!(verdict(lines, exit, None), (Failed, Some(code.to_owned())), "{lines:?} {exit:?}");
        }
    }

    const LIMIT: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've hit your limit"}"#;

    #[test]
    fn a_limit_is_what_the_program_gave_up_because_of() {
        let ends = |at: i64, status: &str| {
            format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{at}}}}}"#)
        };
        let of = |lines: &[&str]| {
            let outcome = judge(Provider::Claude, &claude(lines), Exit::Code(1), None, "");
            (outcome.status, outcome.resume_at)
        };
        let at = Timestamp::from_unix_seconds;
        use FinishStatus::{Failed, Quota};
        assert_eq!(of(&[LIMIT]), (Quota, None));
        assert_eq!(of(&[&ends(1_000, "rejected"), LIMIT]), (Quota, Some(at(1_000))));
        assert_eq!(of(&[&ends(1_000, "allowed_warning"), LIMIT]), (Quota, None));
        assert_eq!(of(&[&ends(1_000, "rejected"), ERROR]), (Failed, None), "it ended for another reason");
        assert_eq!(of(&[&ends(-5, "rejected"), LIMIT]).1, Some(at(0)));
        let far = of(&[&ends(i64::MAX, "rejected"), LIMIT]).1.unwrap();
        let week = Duration::from_secs(7 * 24 * 60 * 60);
        assert!(far < now().plus(week) && far > now().plus(week / 2), "{far}");
        let (retried, text) = (
            r#"{"type":"system","subtype":"api_retry","attempt":1,"error_status":429,"error":"rate_limit"}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"API Error: 429 You've hit your limit"}]}}"#,
        );
        assert_eq!(verdict(&[retried, text, SUCCESS], Exit::Code(0), None), (FinishStatus::Completed, None));
        assert_eq!(verdict(&[text, ERROR], Exit::Code(1), None).1.as_deref(), Some("MODEL_ERROR"));
    }

    #[test]
    fn each_program_has_its_own_sign_of_a_limit() {
        let of = |provider, line: &str, code: i32| {
            let mut transcript = Transcript::new();
            read_line(provider, line, &mut transcript);
            judge(provider, &transcript, Exit::Code(code), None, "").status
        };
        let failed = |message: &str| format!(r#"{{"type":"turn.failed","error":{{"message":"{message}"}}}}"#);
        use FinishStatus::{Completed, Failed, Quota};
        for (message, status) in [
            ("You’ve hit your usage limit. Upgrade to Plus to continue", Quota),
            ("You’ve hit your usage limit for gpt-5. Try again at 4:55 AM.", Quota),
            ("Quota exceeded. Check your plan and billing details.", Quota),
            ("exceeded retry limit, last status: 429 Too Many Requests", Quota),
            ("exceeded retry limit, last status: 503 Service Unavailable", Failed),
            ("stream error: You’ve hit your usage limit", Failed),
        ] {
            assert_eq!(of(Provider::Codex, &failed(message), 1), status, "{message}");
        }
        let error = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: You have exhausted your daily quota]"}}"#;
        assert_eq!((of(Provider::Gemini, error, 173), of(Provider::Gemini, error, 144)), (Quota, Failed));
        assert_eq!(of(Provider::Gemini, r#"{"type":"result","status":"success"}"#, 0), Completed);
    }

    #[test]
    fn a_stop_decides_unless_the_work_was_done() {
        use FinishStatus::{Cancelled, Completed, Timeout};
        let term = Exit::Signal(15);
        assert_eq!(verdict(&[SUCCESS], Exit::Code(0), Some(Stop::Cancel)), (Completed, None));
        assert_eq!(verdict(&[], term, Some(Stop::Cancel)), (Cancelled, None));
        assert_eq!(verdict(&[ERROR], Exit::Code(143), Some(Stop::Timeout)), (Timeout, Some("TIMEOUT".to_owned())));
        assert_eq!(verdict(&[], term, Some(Stop::HandBack)), (Cancelled, Some("HANDED_BACK".to_owned())));
    }
}
