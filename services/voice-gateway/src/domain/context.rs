//! How far the context has come. Only the newest version is kept and delivered.

/// Versions count from 1; 0 is "none".
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ContextMarks {
    /// The newest one.
    pub(crate) version: i64,
    /// The version in the agent's last dispatch, and whether it was inline or a pointer.
    pub(crate) dispatched: i64,
    pub(crate) dispatched_inline: bool,
    /// The version that was sent to the present agent, inline or as a pointer.
    pub(crate) sent: i64,
    /// The version that the present agent is known to have.
    pub(crate) delivered: i64,
}

impl ContextMarks {
    /// An agent became ready and has the version of its dispatch, or was lost and with it what it had.
    pub(crate) fn agent_changed(&mut self, ready: bool) {
        if ready {
            self.sent = self.sent.max(self.dispatched);
            if self.dispatched_inline {
                self.delivered = self.delivered.max(self.dispatched);
            }
        } else {
            self.sent = 0;
            self.delivered = 0;
        }
    }

    pub(crate) fn dispatched(&mut self, inline: bool) {
        self.dispatched = self.version;
        self.dispatched_inline = inline && self.version > 0;
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.version > self.sent.max(self.delivered)
    }

    pub(crate) fn was_sent(&mut self, version: i64) {
        self.sent = self.sent.max(version);
    }

    pub(crate) fn was_delivered(&mut self, version: i64) {
        self.was_sent(version);
        self.delivered = self.delivered.max(version);
    }
}
