//! Who may call a route, as route tables say it.

/// Who may call a route at all. What a caller may do to a particular thing is decided where the thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No credentials; a bearer is ignored.
    Public,
    /// A user's token. A machine token is 403.
    User,
    /// A user's or a machine's token.
    UserOrMachine,
    /// A machine's token. A user's token is 403.
    Machine,
    /// The voice gateway's application key.
    VoiceKey,
    /// The handler checks a signature over the request itself.
    SignedRequest,
}
