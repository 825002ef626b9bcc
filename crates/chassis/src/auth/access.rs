//! The access levels that a route table can ask for.

/// The credentials that a route requires. The service that owns a resource decides what a caller may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No credentials; a bearer is ignored.
    Public,
    /// A user's token. Any other token is 403.
    User,
    /// A user's or a machine's token.
    UserOrMachine,
    /// A user's token, or one that recovery words asked for. A machine token is 403.
    UserOrRecovery,
    /// Any of these tokens.
    AnyToken,
    /// A machine's token. A user's token is 403.
    Machine,
    /// The voice gateway's application key.
    VoiceKey,
    /// The same, and the token of a user, which the handler checks.
    VoicePerson,
    /// The token of the agent in one voice session's room. The handler checks it.
    VoiceAgent,
    /// LiveKit's signature of the request. The handler checks it.
    Webhook,
}

impl Access {
    /// Whether behind the caller are many people, as behind a service.
    pub const fn is_for_many(self) -> bool {
        matches!(self, Self::VoiceKey | Self::VoicePerson | Self::VoiceAgent | Self::Webhook)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_service_are_many_people() {
        use Access::*;
        for access in [VoiceKey, VoicePerson, VoiceAgent, Webhook] {
            assert!(access.is_for_many(), "{access:?}");
        }
        for access in [Public, User, UserOrMachine, UserOrRecovery, AnyToken, Machine] {
            assert!(!access.is_for_many(), "{access:?}");
        }
    }
}
