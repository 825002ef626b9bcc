//! The person's token with which a voice session was started. The session must not outlive the device that asked for the token.

use ensemble_chassis::KeySet;
use ensemble_chassis::auth::{Caller, DeviceKey};
use ensemble_types::ids::TokenId;
use serde::{Deserialize, Serialize};

/// What identity names when it refuses the token before its time. It is not the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartToken {
    id: TokenId,
    /// The key that signed in. Only tokens from before there were devices have none.
    device: Option<DeviceKey>,
}

impl StartToken {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self { id: caller.token, device: caller.device }
    }

    /// Whether the token was revoked, or its device removed. That the token has expired does not matter: the session's own
    /// end is what the person was granted.
    pub(crate) fn is_refused(&self, keys: &KeySet) -> bool {
        keys.is_revoked(self.id) || self.device.is_some_and(|device| keys.is_removed(&device))
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::ids::UserId;

    use super::*;
    use crate::domain::session::VoiceSession;

    #[test]
    fn a_token_is_refused_when_it_was_revoked_or_its_device_removed() {
        let (device, other) = (DeviceKey([1; 32]), DeviceKey([2; 32]));
        let token = StartToken { id: TokenId::generate(), device: Some(device) };
        let keys = |revoked: &[TokenId], removed: &[DeviceKey]| {
            KeySet::new([], revoked.iter().copied()).with_removed(removed.iter().copied())
        };
        assert!(!token.is_refused(&keys(&[], &[])));
        assert!(!token.is_refused(&keys(&[TokenId::generate()], &[other])));
        assert!(token.is_refused(&keys(&[token.id], &[])));
        assert!(token.is_refused(&keys(&[], &[other, device])));
        let without = StartToken { device: None, ..token };
        assert!(!without.is_refused(&keys(&[], &[device])));
    }

    #[test]
    fn an_agent_reads_only_while_the_device_that_began_the_session_counts() {
        let (user, device) = (UserId::generate(), DeviceKey([1; 32]));
        let body = serde_json::from_value(serde_json::json!({ "userId": user, "sessionId": "s" })).unwrap();
        let token = StartToken { id: TokenId::generate(), device: Some(device) };
        let mut session = VoiceSession::plan(body, "agent".to_owned(), None, false, Some(token));
        let good = KeySet::new([], []);
        assert!(!session.may_read_for(user, &good), "before it is live");
        let at = "2026-03-26T00:00:00.000Z";
        let live = serde_json::json!({ "live": { "room_sid": "RM_1", "room_created_at": at, "human": { "awaited": { "departed": null } },
            "agent": { "awaited": { "check_at": at, "said_ready": false, "departed": null } }, "active_at": null, "redispatches": 0 } });
        session.state = serde_json::from_value(live).unwrap();
        assert!(session.may_read_for(user, &good));
        assert!(!session.may_read_for(UserId::generate(), &good));
        assert!(!session.may_read_for(user, &KeySet::new([], []).with_removed([device])));
        session.user_proven = false;
        assert!(!session.may_read_for(user, &good));
    }
}
