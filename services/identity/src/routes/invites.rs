//! The routes of invitations.

use ensemble_chassis::{Access, Routes, Tag, delete, get, post};
use ensemble_types::invites::{AnswerInvite, ClaimInvite, CreateInvite, CreatedInvite, Invite, Invites};
use ensemble_types::problem::Code::{Conflict, NotFound, QuotaExceeded};

use crate::handlers::invites::{self, WaitQuery};

const INVITES: Tag = Tag("Invitations", "One link that brings one person to the server, and into one session.");
const MAX_INVITE: usize = 16 << 10;

/// Adds the routes of invitations.
pub(super) fn add(routes: Routes) -> Routes {
    routes
        .row(
            post("/v1/invites")
                .access(Access::User)
                .operation(INVITES, "createInvite", "Makes an invitation. It names no session.")
                .about(
                    "The invitation is `<address>/join#v1.<id>.<secret>`, with 256 random bits that the server never has. \
                     At most 20 are open, and 50 are made in 24 hours. `admission` lets the guest make an account where that \
                     needs an invitation.",
                )
                .body::<CreateInvite>()
                .max_body(MAX_INVITE)
                .response::<CreatedInvite>(201)
                .errors(&[NotFound, Conflict, QuotaExceeded])
                .closed()
                .handler(invites::create),
        )
        .row(
            get("/v1/invites")
                .access(Access::User)
                .operation(INVITES, "listInvites", "Lists your invitations, the newest first.")
                .about("Those that have ended stay for an hour, answered ones for seven days.")
                .response::<Invites>(200)
                .closed()
                .handler(invites::list),
        )
        .row(
            get("/v1/invites/{id}")
                .access(Access::Public)
                .operation(
                    INVITES,
                    "getInvite",
                    "Says how far an invitation is. The account that made it gets the claim too.",
                )
                .about(
                    "With `waitMs` the call waits for the next step. It needs no token. With a token of the account that \
                     made the invitation, the answer has the claim.",
                )
                .query::<WaitQuery>()
                .response::<Invite>(200)
                .errors(&[NotFound])
                .secret()
                .handler(invites::read),
        )
        .row(
            post("/v1/invites/{id}/claim")
                .access(Access::User)
                .operation(INVITES, "claimInvite", "Claims an invitation for you, once, with your device's signature.")
                .about(
                    "Sign `ensemble-invite-v1`, the origin, the id, your user id, your account key, the version and the \
                     digest of your newest device list, and the digest of the name, each in a line. `mac` is over the same \
                     text. Again is the same; a claim by another account is 409 CONFLICT. A claim without an answer ends after 24 hours.",
                )
                .body::<ClaimInvite>()
                .max_body(MAX_INVITE)
                .response::<Invite>(200)
                .errors(&[NotFound, Conflict])
                .closed()
                .handler(invites::claim),
        )
        .row(
            post("/v1/invites/{id}/answer")
                .access(Access::User)
                .operation(INVITES, "answerInvite", "Answers the claim, sealed for the guest.")
                .about("Any device of the account that made the invitation may, once; again is the same. The guest reads it with `getInvite`.")
                .body::<AnswerInvite>()
                .max_body(MAX_INVITE)
                .response::<Invite>(200)
                .errors(&[NotFound, Conflict])
                .closed()
                .handler(invites::answer),
        )
        .row(
            delete("/v1/invites/{id}")
                .access(Access::User)
                .operation(INVITES, "deleteInvite", "Ends an invitation.")
                .about("Any device of the account that made it may. Again is the same; one that was answered is 409 CONFLICT.")
                .response::<Invite>(200)
                .errors(&[NotFound, Conflict])
                .handler(invites::end),
        )
}
