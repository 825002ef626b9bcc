//! The attempt of a task that is a turn of a live session: it follows the turn to its end. What was said in it stays in the session;
//! the server gets counts, codes and fixed sentences.

use ensemble_host::drain::Phase;
use ensemble_host::{NotBegun, TaskEnd, TaskState, TaskTurn};
use ensemble_protocol::seal::SessionTask;
use ensemble_protocol::transcript::words::{ErrorCode, StopReason};
use ensemble_types::changes::LeaseWaitsFor;
use ensemble_types::ids::SessionId;
use ensemble_types::leases::{FinishStatus, Lease, LeaseFinish};
use ensemble_types::runs::{PermissionDenials, Usage};
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::heartbeat::{Heartbeat, LeaseState};
use super::sealed::{Permitted, not_started};
use super::slash::protected;
use super::slot::Slot;
use crate::outcome::{Outcome, Stop};

/// Follows the turn and returns the report. `None`: the lease is lost.
pub(super) async fn follow(
    context: &Context,
    lease: &Lease,
    permitted: Permitted,
    (heartbeat, slot): (&Heartbeat, &mut Slot),
    mut deadline: Instant,
) -> Option<LeaseFinish> {
    let host = permitted.host.clone();
    let (mut turn, session) = match begin(context, lease, permitted).await {
        Ok(begun) => begun,
        Err(outcome) => return Some(outcome.report(lease.fence)),
    };
    heartbeat.set_live_session(session);
    tracing::info!(lease.id = %lease.id, session.id = %session, "A task is done in a session");
    let mut stop = None;
    let mut asks_since = None;
    let end = loop {
        match turn.state() {
            None => break None,
            Some(TaskState::Ended(end)) => break Some(end),
            Some(TaskState::Asks) if asks_since.is_none() => {
                // A person may take any time to answer, and others can work meanwhile.
                asks_since = Some(Instant::now());
                heartbeat.set_waiting(Some(LeaseWaitsFor::Input));
                // Its agent stays. Without room for another one the next task would only fail.
                if host.has_room() {
                    slot.give_back();
                }
            }
            Some(TaskState::Runs) => {
                if let Some(since) = asks_since.take() {
                    deadline += since.elapsed();
                    heartbeat.set_waiting(None);
                    slot.take_if_free();
                }
            }
            Some(TaskState::Asks) => {}
        }
        let is_untouched = stop.is_none();
        let why = tokio::select! {
            () = turn.changed() => continue,
            () = heartbeat.reached(LeaseState::Lost) => {
                turn.cancel().await;
                return None;
            }
            () = heartbeat.reached(LeaseState::CancelRequested), if is_untouched => Stop::Cancel,
            () = sleep_until(deadline), if is_untouched && asks_since.is_none() => Stop::Timeout,
            // The host ends the turn itself; an end that says so comes next.
            () = context.drain.reached(Phase::HandingBack), if is_untouched => Stop::HandBack,
        };
        stop = Some(why);
        turn.cancel().await;
    };
    let is_draining = context.drain.phase() > Phase::Serving;
    let mut report = outcome(end.as_ref(), stop, is_draining).report(lease.fence);
    report.session_id = Some(session);
    if let Some(end) = end {
        report.usage = usage(&end);
        let denials = PermissionDenials { count: end.denials, denials: Vec::new() };
        report.permission_denials = (end.denials > 0).then_some(denials);
    }
    Some(report)
}

async fn begin(
    context: &Context,
    lease: &Lease,
    Permitted { host, task, directory }: Permitted,
) -> Result<(TaskTurn, SessionId), Outcome> {
    let (directory, prompt_id) = (directory.root.join(directory.below), format!("task-{}", lease.id));
    let mut task: SessionTask = task;
    let environment = &context.config.environment;
    task.prompt = task.prompt.map(|prompt| protected(task.provider, &prompt, &directory, environment));
    // In a separate task: the session is begun to the end, even if the attempt ends.
    let begun = tokio::spawn(async move { host.do_task(task, directory, prompt_id).await });
    match begun.await {
        Ok(Ok((session, turn))) => Ok((turn, session)),
        Ok(Err(why)) => Err(not_started(context, lease, &why)),
        Err(error) => Err(not_started(context, lease, &NotBegun::Other(error.to_string()))),
    }
}

fn usage(end: &TaskEnd) -> Option<Usage> {
    let usage = Usage {
        input_tokens: end.usage.map(|usage| usage.input_tokens),
        output_tokens: end.usage.map(|usage| usage.output_tokens),
        cost_usd: end.cost_usd,
    };
    (usage != Usage::default()).then_some(usage)
}

/// What is reported to the server. `end` is `None` when the session is no longer hosted.
fn outcome(end: Option<&TaskEnd>, stop: Option<Stop>, is_draining: bool) -> Outcome {
    let failed = |code, sentence| Outcome::not_startable(code, sentence);
    let Some(end) = end else { return Outcome::interrupted() };
    match (&end.stop, &end.error, stop) {
        (Some(StopReason::EndTurn), ..) => {
            Outcome { status: FinishStatus::Completed, error: None, exit_code: None, resume_at: None }
        }
        (_, _, Some(Stop::Cancel)) => Outcome::cancelled(),
        (_, _, Some(Stop::Timeout)) => Outcome {
            status: FinishStatus::Timeout,
            ..failed("TIMEOUT", "The turn took longer than the timeout of its task. What was done is in the session.")
        },
        (_, _, Some(_)) => Outcome::handed_back(),
        _ if is_draining => Outcome::interrupted(),
        // The host has interrupted it. Only a limit of the provider is waited for.
        (Some(StopReason::Cancelled), Some(ErrorCode::Quota), _) if !end.by_person => {
            failed("COST_LIMIT_REACHED", "The session has cost as much as it may. The session says more.")
        }
        (_, Some(ErrorCode::Quota), _) => Outcome {
            status: FinishStatus::Quota,
            resume_at: end.retry_at,
            ..failed("PROVIDER_LIMIT_REACHED", "The provider's usage limit is reached. The session says more.")
        },
        (_, Some(ErrorCode::Login), _) => {
            failed("PROVIDER_NOT_SIGNED_IN", "The agent is not signed in on its machine. The session says more.")
        }
        (Some(StopReason::Cancelled), ..) => failed(
            "INTERRUPTED",
            "A person interrupted the turn in its session. Continue there: the machine does not do the task again.",
        ),
        (None, None, _) => failed("SESSION_ENDED", "The session was stopped before the agent had begun with the task."),
        _ => failed("AGENT_FAILED", "The agent did not end the turn as it should. The session says why."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_code() {
        let end = |stop: Option<StopReason>, error: Option<ErrorCode>| TaskEnd { stop, error, ..TaskEnd::default() };
        let code = |end: Option<&TaskEnd>, stop, is_draining| {
            let outcome = outcome(end, stop, is_draining);
            (outcome.status, outcome.error.map(|error| error.code.into_string()).unwrap_or_default())
        };
        let done = end(Some(StopReason::EndTurn), None);
        // It had ended before the order to stop came.
        for stop in [None, Some(Stop::Cancel), Some(Stop::Timeout), Some(Stop::HandBack)] {
            assert_eq!(code(Some(&done), stop, true), (FinishStatus::Completed, String::new()));
        }
        let interrupted = end(Some(StopReason::Cancelled), None);
        for (stop, is_draining, status, expected) in [
            (None, false, FinishStatus::Failed, "INTERRUPTED"),
            (None, true, FinishStatus::Cancelled, "RUNNER_STOPPED"),
            (Some(Stop::Cancel), false, FinishStatus::Cancelled, ""),
            (Some(Stop::Timeout), false, FinishStatus::Timeout, "TIMEOUT"),
            (Some(Stop::HandBack), true, FinishStatus::Cancelled, "HANDED_BACK"),
        ] {
            assert_eq!(code(Some(&interrupted), stop, is_draining), (status, expected.to_owned()), "{stop:?}");
        }
        let quota = end(Some(StopReason::Limit), Some(ErrorCode::Quota));
        assert_eq!(code(Some(&quota), None, false), (FinishStatus::Quota, "PROVIDER_LIMIT_REACHED".to_owned()));
        let cost = end(Some(StopReason::Cancelled), Some(ErrorCode::Quota));
        assert_eq!(code(Some(&cost), None, false), (FinishStatus::Failed, "COST_LIMIT_REACHED".to_owned()));
        let by_person = TaskEnd { by_person: true, ..cost };
        assert_eq!(code(Some(&by_person), None, false).0, FinishStatus::Quota, "the provider's limit came first");
        let login = end(None, Some(ErrorCode::Login));
        assert_eq!(code(Some(&login), None, false).1, "PROVIDER_NOT_SIGNED_IN");
        assert_eq!(code(Some(&end(None, None)), None, false).1, "SESSION_ENDED");
        let crashed = end(Some(StopReason::Error), Some(ErrorCode::Crashed));
        assert_eq!(code(Some(&crashed), None, false).1, "AGENT_FAILED");
        assert_eq!(code(None, None, false), (FinishStatus::Cancelled, "RUNNER_STOPPED".to_owned()));
    }
}
