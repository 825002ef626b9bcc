//! The table of the public door.

use ensemble_chassis::{Routes, Who, delete, get, patch, post};
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
                .who(Who::Anyone)
                .says(TAG, "Gives random bytes to sign, good once and for a minute.")
                .gives::<Challenge>(200)
                .errors(&[Unavailable])
                .to(auth::challenge),
        )
        .row(
            post("/v1/auth")
                .who(Who::Anyone)
                .says(TAG, "Signs in with a signed challenge; the first time, it makes the account.")
                .takes::<SignIn>()
                .gives::<SignedIn>(200)
                .errors(&[Unauthenticated, RegistrationClosed])
                .to(auth::sign_in),
        )
        .row(
            get("/v1/account")
                .who(Who::User)
                .says(TAG, "Reads your account.")
                .gives::<Account>(200)
                .errors(&[NotFound])
                .to(account::read),
        )
        .row(
            patch("/v1/account")
                .who(Who::User)
                .says(TAG, "Sets your display name, or your content key with the account key's signature.")
                .takes::<UpdateAccount>()
                .gives::<Account>(200)
                .errors(&[NotFound])
                .to(account::update),
        )
        .row(
            get("/v1/users/{id}")
                .who(Who::User)
                .says(TAG, "Reads what may be known of a user. Verify the signature before sealing to the content key.")
                .gives::<PublicUser>(200)
                .errors(&[NotFound])
                .to(users::read),
        )
        .row(
            post("/v1/auth/tokens")
                .who(Who::User)
                .says(TAG, "Makes a token that can only act as one machine's runner; it is shown this once.")
                .takes::<CreateMachineToken>()
                .gives::<CreatedMachineToken>(201)
                .errors(&[Conflict])
                .to(tokens::create),
        )
        .row(
            get("/v1/auth/tokens")
                .who(Who::User)
                .says(TAG, "Lists your machine tokens that are good, newest first.")
                .query::<PageQuery>()
                .gives::<MachineTokenPage>(200)
                .errors(&[InvalidCursor])
                .to(tokens::list),
        )
        .row(
            delete("/v1/auth/tokens/{id}")
                .who(Who::User)
                .says(TAG, "Revokes a machine token, or the token that the call is made with.")
                .gives::<Deleted>(200)
                .errors(&[NotFound])
                .to(tokens::revoke),
        )
        .row(
            get("/.well-known/jwks.json")
                .who(Who::Anyone)
                .says(TAG, "The keys that tokens are verified with.")
                .gives::<Jwks>(200)
                .to(jwks::read),
        )
}
