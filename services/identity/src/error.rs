//! Every error of this service, and the problem that a caller gets for it. The only file here that knows HTTP statuses.

use ensemble_chassis::IntoProblem;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::devices::SignedList;
use ensemble_types::problem::{Code, Problem};

use crate::domain::{
    BadAccountChange, BadLifetime, BadList, BadSubscription, INVITES_A_DAY, InviteClosed, LinkClosed,
    MOST_OPEN_INVITES, MOST_OPEN_LINKS, MalformedProof, Registration,
};
use crate::keys::RingError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no such account")]
    AccountNotFound,
    #[error("the account has no such token")]
    TokenNotFound,
    #[error("the challenge or the proof is not valid")]
    InvalidProof,
    #[error("there is no such account, and none may be made")]
    NoAccount(Registration),
    #[error("there is no such account, and the client wants none to be made")]
    UnknownKey,
    #[error("the device was removed from its account")]
    DeviceRemoved,
    #[error("the account has no such device")]
    DeviceNotFound,
    #[error("no content ring is sealed to the device")]
    NoContentRing,
    #[error("there is no such device link")]
    LinkNotFound,
    #[error("only a primary device may do this")]
    NotPrimary,
    #[error("only the device itself may do this")]
    NotTheDevice,
    #[error("the push subscription: {0}")]
    BadSubscription(#[from] BadSubscription),
    #[error("the device list does not follow the newest one")]
    DeviceListConflict(Option<Box<SignedList>>),
    #[error("the key is or was in a device list, or is an account")]
    KeyTaken,
    #[error("the account has made too many device lists today")]
    TooManyLists,
    #[error("the account has too many open links")]
    TooManyLinks,
    /// A field or parameter, and its rule.
    #[error("{0} {1}")]
    BadField(&'static str, &'static str),
    #[error(transparent)]
    BadList(#[from] BadList),
    /// One of several lists, by its place.
    #[error("list {0}: {1}")]
    BadListOf(usize, BadList),
    #[error(transparent)]
    LinkClosed(#[from] LinkClosed),
    #[error("there is no such invitation")]
    InviteNotFound,
    #[error("the account has too many open invitations")]
    TooManyInvites,
    #[error("the account has made too many invitations today")]
    TooManyInvitesToday,
    #[error("the account has no device list")]
    NoDeviceList,
    #[error("the invitation is the caller's own")]
    OwnInvite,
    #[error(transparent)]
    InviteClosed(#[from] InviteClosed),
    #[error("too many challenges are open")]
    TooManyChallenges,
    #[error("the account has too many machine tokens")]
    TooManyTokens,
    #[error(transparent)]
    MalformedProof(#[from] MalformedProof),
    #[error(transparent)]
    BadAccountChange(#[from] BadAccountChange),
    #[error(transparent)]
    BadLifetime(#[from] BadLifetime),
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::AccountNotFound
            | Self::TokenNotFound
            | Self::DeviceNotFound
            | Self::LinkNotFound
            | Self::InviteNotFound => Problem::not_found(),
            Self::NoContentRing => Problem::new(
                Code::NotFound,
                "No content ring is sealed to this device. An account without a device list sends its first one: POST /v1/devices.",
            ),
            Self::UnknownKey => Problem::new(
                Code::UserNotFound,
                "No account has this key. Sign in with another one, or leave out `create` to make an account.",
            ),
            Self::DeviceRemoved => Problem::device_removed(),
            Self::NotPrimary => Problem::new(Code::Forbidden, "Only a primary device can do this. Use one of those."),
            Self::NotTheDevice => {
                Problem::new(Code::Forbidden, "A device sets its own notifications only. Set them there.")
            }
            Self::BadSubscription(bad) => {
                let field = match bad {
                    BadSubscription::Endpoint => "endpoint",
                    BadSubscription::PublicKey => "keys/p256dh",
                    BadSubscription::Auth => "keys/auth",
                };
                Problem::field(format!("/pushSubscription/{field}"), bad.to_string())
            }
            Self::DeviceListConflict(current) => {
                let detail = match &current {
                    Some(_) => "Verify `current`, make your change on top of it, and send it again.",
                    None => "This account has no device list yet: the first one has version 1, and `prev` is null.",
                };
                Problem::new(Code::DeviceListConflict, detail)
                    .with("current", serde_json::to_value(current).unwrap_or_default())
            }
            Self::KeyTaken => Problem::new(
                Code::Conflict,
                "A key belongs to one account and is listed once. Make a new key pair on the device.",
            ),
            Self::TooManyLists => Problem::new(
                Code::QuotaExceeded,
                "The devices of this account were changed too often today. Change them again tomorrow.",
            ),
            Self::TooManyLinks => Problem::new(
                Code::Conflict,
                format!("The account has {MOST_OPEN_LINKS} open links. Refuse one, or wait until one has expired."),
            ),
            Self::BadField(pointer, rule) => Problem::field(pointer, rule),
            Self::BadList(bad) => Problem::field(place(&bad), bad.to_string()),
            Self::BadListOf(at, bad) => Problem::field(format!("/lists/{at}"), bad.to_string()),
            Self::LinkClosed(closed) => {
                Problem::new(Code::Conflict, format!("This cannot be done: {closed}. Make a new link."))
            }
            Self::InviteClosed(closed) => {
                Problem::new(Code::Conflict, format!("This cannot be done: {closed}. Ask for a new invitation."))
            }
            Self::TooManyInvites => Problem::new(
                Code::Conflict,
                format!("{MOST_OPEN_INVITES} invitations of this account are open. End one first: DELETE /v1/invites/{{id}}."),
            ),
            Self::TooManyInvitesToday => Problem::new(
                Code::QuotaExceeded,
                format!("The account has made {INVITES_A_DAY} invitations in 24 hours. Make the next one later."),
            ),
            Self::NoDeviceList => Problem::new(
                Code::Conflict,
                "An account without a device list cannot join. Send the first list: POST /v1/devices.",
            ),
            Self::OwnInvite => {
                Problem::new(Code::InvalidArgument, "This is an invitation of your own account. It is for another person.")
            }
            // The same text for every reason, so that it does not reveal which part was right.
            Self::InvalidProof => Problem::new(
                Code::Unauthenticated,
                "The sign-in was not accepted. Ask for a new challenge, and sign it for the origin that you called.",
            ),
            Self::NoAccount(Registration::Limited(seconds)) => Problem::new(
                Code::RateLimited,
                format!(
                    "As many new accounts as one address may make in an hour were made from yours. The next one is allowed in \
                     {seconds} s. The operator of the server sets this limit (LIMIT_NEW_ACCOUNTS)."
                ),
            )
            .with_retry_after(seconds),
            Self::NoAccount(Registration::Invited) => Problem::new(
                Code::RegistrationClosed,
                "This server makes new accounts by invitation. Ask someone who has one for a link, or for a new one when yours was used.",
            ),
            Self::NoAccount(_) => {
                Problem::new(Code::RegistrationClosed, "This server makes no new accounts. Ask its operator for one.")
            }
            Self::TooManyChallenges => {
                Problem::new(Code::Unavailable, "Too many sign-ins are in progress. Try again shortly.")
                    .with_retry_after(5)
            }
            Self::TooManyTokens => Problem::new(
                Code::Conflict,
                "The account has the maximum number of machine tokens. Wait until some have expired.",
            ),
            Self::MalformedProof(malformed) => Problem::field(format!("/{}", malformed.field), malformed.rule),
            Self::BadAccountChange(BadAccountChange::Empty) => Problem::new(
                Code::InvalidArgument,
                "Send `displayName`, `contentPublicKey` with its signature, or `clientState`.",
            ),
            Self::BadAccountChange(BadAccountChange::OldState { version, value }) => {
                let detail =
                    "`clientState` has another version. Merge your change with `current` and send its version.";
                Problem::new(Code::VersionMismatch, detail)
                    .with("field", "clientState")
                    .with("current", serde_json::json!({ "version": version, "value": value }))
            }
            Self::BadAccountChange(BadAccountChange::Field { field, rule }) => {
                Problem::field(format!("/{field}"), rule)
            }
            Self::BadLifetime(bad) => Problem::field("/expiresInSeconds", bad.to_string()),
            Self::InvalidCursor(invalid) => invalid.into(),
            Self::Ring(RingError::Store(error)) | Self::Store(error) => error.into_problem(),
            Self::Ring(error) => {
                tracing::error!(%error, "The signing keys cannot be used");
                Problem::new(Code::Unavailable, "Tokens cannot be made at the moment. Try again shortly.")
            }
        }
    }
}

/// Where in the body the mistake is.
fn place(bad: &BadList) -> &'static str {
    match bad {
        BadList::Sealed => "/sealed",
        BadList::Names(_) => "/names",
        BadList::OtherLink => "/link",
        BadList::Lists => "/lists",
        BadList::Links => "/links",
        BadList::NotNext | BadList::List(_) | BadList::TooLong | BadList::RoleOfKey | BadList::Unproven(_) => "/list",
    }
}

impl IntoProblem for MalformedProof {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}

impl IntoProblem for BadAccountChange {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}

impl IntoProblem for BadLifetime {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}
