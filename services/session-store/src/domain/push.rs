//! What people are notified of, and when.

use std::time::Duration;

use ensemble_types::attention::AttentionKind;
use ensemble_types::pushes::PushKind;

/// How long things have to last until people are notified of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushRules {
    /// A request that was answered within this time is no notification.
    pub(crate) answered_within: Duration,
    /// The end of a shorter turn is no notification.
    pub(crate) long_turn: Duration,
}

impl PushRules {
    /// What to notify of when a session begins to want something, and how long to wait before. `worked`: for how long the agent has
    /// thought without a pause, as far as the session's machine has said.
    pub(crate) fn notify_of(self, kind: AttentionKind, worked: Option<Duration>) -> Option<(PushKind, Duration)> {
        match kind {
            AttentionKind::Permission => Some((PushKind::Permission, self.answered_within)),
            AttentionKind::Question => Some((PushKind::Question, self.answered_within)),
            AttentionKind::Failed => Some((PushKind::Failed, Duration::ZERO)),
            AttentionKind::Finished if worked? >= self.long_turn => Some((PushKind::Finished, Duration::ZERO)),
            AttentionKind::Finished | AttentionKind::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_and_short_turns_are_silent() {
        let rules = PushRules { answered_within: Duration::from_secs(10), long_turn: Duration::from_secs(60) };
        let of = |kind, seconds: Option<u64>| rules.notify_of(kind, seconds.map(Duration::from_secs));
        assert_eq!(of(AttentionKind::Permission, None), Some((PushKind::Permission, Duration::from_secs(10))));
        assert_eq!(of(AttentionKind::Question, Some(1)), Some((PushKind::Question, Duration::from_secs(10))));
        assert_eq!(of(AttentionKind::Failed, Some(1)), Some((PushKind::Failed, Duration::ZERO)));
        assert_eq!(of(AttentionKind::Finished, Some(60)), Some((PushKind::Finished, Duration::ZERO)));
        assert_eq!([of(AttentionKind::Finished, Some(59)), of(AttentionKind::Finished, None)], [None; 2]);
        assert_eq!(of(AttentionKind::None, Some(600)), None);
    }
}
