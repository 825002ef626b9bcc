//! What the attempts of a task may cost together.

use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::TaskError;

use super::{AttemptEnd, Retry};

/// The code of a report, and of a task, that has cost more than it may.
pub(crate) const COST_LIMIT_REACHED: &str = "COST_LIMIT_REACHED";

/// What a task may cost, and what it has cost since a person started it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spending {
    pub(crate) max: Option<f64>,
    pub(crate) spent: f64,
}

impl Spending {
    /// What the next attempt may cost.
    pub(crate) fn rest(&self) -> Option<f64> {
        self.max.map(|max| (max - self.spent).max(0.0))
    }

    /// The end of an attempt, which is another one when the limit is reached. Nothing is left for another attempt then.
    pub(crate) fn limit(&self, end: AttemptEnd, retry: Retry, failures: i32) -> AttemptEnd {
        use FinishStatus as S;
        let is_above = self.max.is_some_and(|max| self.spent > max);
        let is_used_up = self.max.is_some_and(|max| self.spent >= max);
        match end {
            AttemptEnd::Reported(S::Failed, Some(error)) if error.code == COST_LIMIT_REACHED => {
                AttemptEnd::CostLimit(error)
            }
            AttemptEnd::Reported(S::Completed, _) if is_above => AttemptEnd::CostLimit(self.error()),
            AttemptEnd::Reported(S::Failed | S::Timeout, _)
                if is_used_up && retry.pause_after(failures + 1).is_some() =>
            {
                AttemptEnd::CostLimit(self.error())
            }
            AttemptEnd::Quota { .. } if is_used_up => AttemptEnd::CostLimit(self.error()),
            end => end,
        }
    }

    fn error(&self) -> TaskError {
        let max = self.max.unwrap_or_default();
        TaskError {
            code: COST_LIMIT_REACHED.to_owned(),
            message: format!(
                "The attempts of the task have cost ${:.4}, and together they may cost ${max}.",
                self.spent
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn code(spent: f64, end: AttemptEnd, attempts: i32) -> Option<String> {
        let retry = Retry { max_attempts: attempts, ..Retry::default() };
        match (Spending { max: Some(2.0), spent }).limit(end, retry, 0) {
            AttemptEnd::CostLimit(error) => Some(error.code),
            _ => None,
        }
    }

    #[test]
    fn nothing_is_done_beyond_the_limit() {
        let completed = || AttemptEnd::Reported(FinishStatus::Completed, None);
        let failed = || AttemptEnd::Reported(FinishStatus::Failed, None);
        let quota = || AttemptEnd::Quota { wait: Duration::ZERO, is_last: false };
        let limit = Some(COST_LIMIT_REACHED.to_owned());
        assert_eq!(code(2.0, completed(), 1), None, "it has cost what it may");
        assert_eq!(code(2.1, completed(), 1), limit);
        assert_eq!(code(1.9, failed(), 2), None);
        assert_eq!(code(2.0, failed(), 2), limit, "nothing is left for another attempt");
        assert_eq!(code(2.5, failed(), 1), None, "the last attempt failed for its own reason");
        assert_eq!((code(1.9, quota(), 1), code(2.0, quota(), 1)), (None, limit.clone()));
        let failed_with = |code: &str| {
            let error = TaskError { code: code.to_owned(), message: String::new() };
            AttemptEnd::Reported(FinishStatus::Failed, Some(error))
        };
        assert_eq!(code(0.0, failed_with("COST_LIMIT_REACHED"), 9), limit, "it is not retried");
        assert_eq!(code(0.0, failed_with("AGENT_FAILED"), 9), None, "another failure is");
        let unlimited = Spending { max: None, spent: 1e6 };
        assert_eq!((unlimited.limit(completed(), Retry::default(), 0), unlimited.rest()), (completed(), None));
        assert_eq!(Spending { max: Some(2.0), spent: 3.0 }.rest(), Some(0.0));
    }
}
