//! Passes hints on to session-store, which gives them to the readers of an account's events.

use std::sync::Arc;

use ensemble_chassis::ServiceContext;
use ensemble_types::hints::AccountHint;

use crate::sessions::{AccountHint as WireHint, AccountHints, AccountHintsClient, GiveHintsRequest};
use crate::{Channel, Peer};

/// Cheap to clone.
#[derive(Clone)]
pub struct HintSender(Arc<dyn AccountHints>);

impl HintSender {
    pub fn new(context: &ServiceContext, session_store: &Peer) -> Self {
        Self(Arc::new(AccountHintsClient::new(Channel::new(context, session_store))))
    }

    /// Sends at most 1,000 hints. Those that do not arrive within the deadline of a call are lost: readers read again from time to
    /// time and after each reconnect.
    pub fn send(&self, hints: Vec<AccountHint>) -> impl Future<Output = ()> + use<> {
        let wire = |hint: AccountHint| WireHint {
            user_id: hint.user.to_string(),
            kind: hint.kind.as_str().to_owned(),
            id: hint.id,
            revision: hint.revision,
        };
        let count = hints.len();
        let request = GiveHintsRequest { hints: hints.into_iter().map(wire).collect() };
        let peer = Arc::clone(&self.0);
        async move {
            if let Err(error) = peer.give(request).await {
                tracing::debug!(%error, count, "Hints were lost");
            }
        }
    }
}
