//! The table of the public door.

use ensemble_chassis::{Routes, Who, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::links::{CreateLink, Link, PublicView};
use ensemble_types::messages::{AppendRequest, AppendedMessages, Message, MessagePage};
use ensemble_types::problem::Code::{
    Conflict, Forbidden, IdempotencyMismatch, InvalidCursor, LinkNotFound, MachineNotFound, NotFound, Unavailable,
    UserNotFound, VersionMismatch,
};
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};

use crate::handlers::{messages, public_links, sessions, shares, stream};

pub(crate) fn table() -> Routes {
    public_links_of(shares_of(messages_of(sessions_of(Routes::new()))))
}

fn sessions_of(routes: Routes) -> Routes {
    const TAG: &str = "Sessions";
    routes
        .row(
            post("/v1/sessions")
                .who(Who::User)
                .says(TAG, "Makes a session on one of your machines; the same tag gives the same session.")
                .takes::<CreateSession>()
                .idempotent()
                .gives::<Session>(201)
                .gives::<Session>(200)
                .errors(&[MachineNotFound, NotFound, IdempotencyMismatch, Conflict, Unavailable])
                .to(sessions::create),
        )
        .row(
            get("/v1/sessions")
                .who(Who::User)
                .says(TAG, "Lists your sessions, the one changed last first.")
                .query::<sessions::ListQuery>()
                .gives::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .to(sessions::list),
        )
        .row(
            get("/v2/sessions/active")
                .who(Who::User)
                .says(TAG, "Lists your sessions that have not ended.")
                .query::<sessions::ListQuery>()
                .gives::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .to(sessions::list_active),
        )
        .row(
            get("/v1/sessions/{id}")
                .who(Who::User)
                .says(TAG, "Reads a session.")
                .gives::<Session>(200)
                .errors(&[NotFound])
                .to(sessions::read),
        )
        .row(
            patch("/v1/sessions/{id}")
                .who(Who::User)
                .says(
                    TAG,
                    "Changes a session: its metadata, agent state, status, archive or key; or tells that it is alive.",
                )
                .takes::<UpdateSession>()
                .gives::<Session>(200)
                .errors(&[NotFound, Forbidden, VersionMismatch])
                .to(sessions::update),
        )
        .row(
            delete("/v1/sessions/{id}")
                .who(Who::User)
                .says(TAG, "Deletes a session for everyone, with its messages, shares and link.")
                .gives::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .to(sessions::remove),
        )
}

fn messages_of(routes: Routes) -> Routes {
    const TAG: &str = "Messages";
    routes
        .row(
            post("/v3/sessions/{id}/messages")
                .who(Who::User)
                .says(
                    TAG,
                    "Appends a message, or 1 to 200 at once; the same localId again answers with the first record.",
                )
                .takes::<AppendRequest>()
                .gives::<Message>(201)
                .gives::<Message>(200)
                .gives::<AppendedMessages>(201)
                .gives::<AppendedMessages>(200)
                .errors(&[NotFound, Forbidden, Unavailable])
                .to(messages::append),
        )
        .row(
            get("/v3/sessions/{id}/messages")
                .who(Who::User)
                .says(TAG, "Reads a part of the history.")
                .query::<messages::WindowQuery>()
                .gives::<MessagePage>(200)
                .errors(&[NotFound])
                .to(messages::page),
        )
        .row(
            get("/v3/sessions/{id}/messages/stream")
                .who(Who::User)
                .says(TAG, "Follows the session live, as Server-Sent Events.")
                .query::<stream::StreamQuery>()
                .gives_as(200, "text/event-stream")
                .errors(&[NotFound])
                .to(stream::open),
        )
}

fn shares_of(routes: Routes) -> Routes {
    const TAG: &str = "Private sharing";
    routes
        .row(
            get("/v1/sessions/{id}/shares")
                .who(Who::User)
                .says(TAG, "Lists the users that the session is shared with, newest first; the owner's only.")
                .query::<shares::ListQuery>()
                .gives::<SharePage>(200)
                .errors(&[NotFound, Forbidden, InvalidCursor])
                .to(shares::list),
        )
        .row(
            post("/v1/sessions/{id}/shares")
                .who(Who::User)
                .says(TAG, "Shares the session with a user, or replaces the share that is there.")
                .takes::<CreateShare>()
                .gives::<Share>(201)
                .gives::<Share>(200)
                .errors(&[NotFound, Forbidden, UserNotFound, Conflict, Unavailable])
                .to(shares::create),
        )
        .row(
            patch("/v1/sessions/{id}/shares/{userId}")
                .who(Who::User)
                .says(TAG, "Changes a user's access level or sealed key.")
                .takes::<UpdateShare>()
                .gives::<Share>(200)
                .errors(&[NotFound, Forbidden])
                .to(shares::update),
        )
        .row(
            delete("/v1/sessions/{id}/shares/{userId}")
                .who(Who::User)
                .says(TAG, "Ends a user's access.")
                .gives::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .to(shares::remove),
        )
}

fn public_links_of(routes: Routes) -> Routes {
    const TAG: &str = "Public sharing";
    routes
        .row(
            post("/v1/sessions/{id}/public-share")
                .who(Who::User)
                .says(TAG, "Makes the session's public link, or makes it anew; the old one is dead then.")
                .may_take::<CreateLink>()
                .gives::<Link>(201)
                .gives::<Link>(200)
                .errors(&[NotFound, Forbidden])
                .to(public_links::create),
        )
        .row(
            delete("/v1/sessions/{id}/public-share")
                .who(Who::User)
                .says(TAG, "Ends the public link and every viewing through it.")
                .gives::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .to(public_links::remove),
        )
        .row(
            get("/v1/public-sessions/{token}")
                .who(Who::Anyone)
                .says(
                    TAG,
                    "Reads a publicly shared session: one use, or none with the X-View-Token of an earlier answer.",
                )
                .query::<messages::WindowQuery>()
                .gives::<PublicView>(200)
                .errors(&[LinkNotFound])
                .to(public_links::view),
        )
        .row(
            get("/v1/public-sessions/{token}/stream")
                .who(Who::Anyone)
                .says(TAG, "Follows a publicly shared session live, with an X-View-Token.")
                .query::<stream::StreamQuery>()
                .gives_as(200, "text/event-stream")
                .errors(&[LinkNotFound])
                .to(public_links::watch),
        )
}
