//! The routes of the public listener.

use ensemble_chassis::{Access, Routes, delete, get, patch, post};
use ensemble_types::accounts::{
    Account, Challenge, CreateMachineToken, CreatedMachineToken, Jwks, MachineTokenPage, PublicUser, SignIn, SignedIn,
    UpdateAccount,
};
use ensemble_types::deleted::Deleted;
use ensemble_types::problem::Code::{
    Conflict, InvalidCursor, NotFound, RegistrationClosed, Unauthenticated, Unavailable,
};

use crate::handlers::tokens::PageQuery;
use crate::handlers::{account, auth, jwks, tokens, users};

pub(crate) fn table() -> Routes {
    const TAG: &str = "Accounts";
    Routes::new()
        .row(
            post("/v1/auth/challenge")
                .access(Access::Public)
                .summary(TAG, "Gives random bytes to sign, valid once and for a minute.")
                .response::<Challenge>(200)
                .errors(&[Unavailable])
                .handler(auth::challenge),
        )
        .row(
            post("/v1/auth")
                .access(Access::Public)
                .summary(TAG, "Signs in with a signed challenge; the first time, it makes the account.")
                .body::<SignIn>()
                .max_body(4 << 10)
                .response::<SignedIn>(200)
                .errors(&[Unauthenticated, RegistrationClosed])
                .handler(auth::sign_in),
        )
        .row(
            get("/v1/account")
                .access(Access::User)
                .summary(TAG, "Reads your account.")
                .response::<Account>(200)
                .errors(&[NotFound])
                .handler(account::read),
        )
        .row(
            patch("/v1/account")
                .access(Access::User)
                .summary(TAG, "Sets your display name, or your content key with the account key's signature.")
                .body::<UpdateAccount>()
                .response::<Account>(200)
                .errors(&[NotFound])
                .handler(account::update),
        )
        .row(
            get("/v1/users/{id}")
                .access(Access::User)
                .summary(TAG, "Reads a user's public data. Verify the signature before sealing to the content key.")
                .response::<PublicUser>(200)
                .errors(&[NotFound])
                .handler(users::read),
        )
        .row(
            post("/v1/auth/tokens")
                .access(Access::User)
                .summary(TAG, "Makes a token that can only act as one machine's runner; it is shown only once.")
                .body::<CreateMachineToken>()
                .response::<CreatedMachineToken>(201)
                .errors(&[Conflict])
                .handler(tokens::create),
        )
        .row(
            get("/v1/auth/tokens")
                .access(Access::User)
                .summary(TAG, "Lists your valid machine tokens, newest first.")
                .query::<PageQuery>()
                .response::<MachineTokenPage>(200)
                .errors(&[InvalidCursor])
                .handler(tokens::list),
        )
        .row(
            delete("/v1/auth/tokens/{id}")
                .access(Access::User)
                .summary(TAG, "Revokes a machine token, or the token that the call is made with.")
                .response::<Deleted>(200)
                .errors(&[NotFound])
                .handler(tokens::revoke),
        )
        .row(
            get("/.well-known/jwks.json")
                .access(Access::Public)
                .summary(TAG, "The keys that tokens are verified with.")
                .response::<Jwks>(200)
                .handler(jwks::read),
        )
}
