//! What an account can store: sessions, and the messages in them, also those of guests.

use ensemble_store_kit::Quota;

/// The quotas of every account; 0 is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaLimits {
    pub(crate) sessions: i64,
    pub(crate) message_bytes: i64,
}

/// The quotas, with what this process knows of their use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Quotas {
    pub(crate) sessions: Quota,
    pub(crate) message_bytes: Quota,
}

impl Quotas {
    /// Their names on the wire.
    pub(crate) const SESSIONS: &str = "sessions";
    pub(crate) const MESSAGE_BYTES: &str = "messageBytes";

    pub(crate) fn new(limits: QuotaLimits) -> Self {
        Self {
            sessions: Quota::new(Self::SESSIONS, limits.sessions),
            message_bytes: Quota::new(Self::MESSAGE_BYTES, limits.message_bytes),
        }
    }
}
