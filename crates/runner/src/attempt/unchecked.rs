//! What works without permission checks is in the log once: at each attempt it would hide what is new.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ensemble_types::runs::Provider;

/// The programs that have worked without permission checks since the runner has started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unchecked(Arc<Mutex<BTreeSet<Provider>>>);

impl Unchecked {
    /// Whether it is the first time that this one does.
    pub(super) fn is_first(&self, provider: Provider) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_named_once_for_all_attempts() {
        let unchecked = Unchecked::default();
        let of_another_attempt = unchecked.clone();
        assert!(unchecked.is_first(Provider::Claude));
        assert!(!of_another_attempt.is_first(Provider::Claude));
        assert!(of_another_attempt.is_first(Provider::Codex));
    }
}
