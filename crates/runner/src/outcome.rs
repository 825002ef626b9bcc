//! How an attempt has ended, as the service is to know it.

use ensemble_types::leases::{FinishStatus, LeaseError, LeaseFinish};
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;

use crate::excerpt::excerpt;

/// The limit of an error message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 2 * 1024;

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
    pub(crate) fn of(status: FinishStatus, error: Option<LeaseError>) -> Self {
        Self { status, error, exit_code: None, resume_at: None }
    }

    /// An attempt that cannot be started on any machine.
    pub(crate) fn not_startable(code: &str, message: impl Into<String>) -> Self {
        Self::of(FinishStatus::Failed, error(code, message))
    }

    /// An attempt that cannot be started on this machine. Another one may be able to.
    pub(crate) fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::of(FinishStatus::Refused, error(code, message))
    }

    /// An attempt that was not started because it was cancelled.
    pub(crate) fn cancelled() -> Self {
        Self::of(FinishStatus::Cancelled, None)
    }

    /// An attempt that is handed back because the runner ends. The next attempt resumes the agent's session.
    pub(crate) fn handed_back() -> Self {
        let message = "The runner on this machine ended before the attempt.";
        Self::of(FinishStatus::Cancelled, error("HANDED_BACK", message))
    }

    /// An attempt whose runner died.
    pub(crate) fn interrupted() -> Self {
        let message = "The runner on this machine stopped before the attempt had ended.";
        Self::of(FinishStatus::Cancelled, error("RUNNER_STOPPED", message))
    }

    /// The report for the service.
    pub(crate) fn report(self, fence: i64) -> LeaseFinish {
        LeaseFinish {
            fence,
            status: self.status,
            resume_at: self.resume_at,
            exit_code: self.exit_code,
            output_summary: None,
            provider_session_id: None,
            usage: None,
            permission: None,
            permission_denials: None,
            changes: None,
            session_id: None,
            error: self.error,
        }
    }
}

pub(crate) fn error(code: &str, message: impl Into<String>) -> Option<LeaseError> {
    // The interface refuses U+0000 and messages that are too long.
    let message = excerpt(&message.into().replace('\0', "\u{fffd}"), MESSAGE_BYTES);
    Some(LeaseError { code: Text::new(code).ok()?, message: Text::new(message).ok()? })
}
