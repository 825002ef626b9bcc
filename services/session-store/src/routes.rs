//! The table of the public door.

use ensemble_chassis::{Access, Routes, delete, get, patch, post};
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
                .access(Access::User)
                .summary(TAG, "Makes a session on one of your machines; the same tag gives the same session.")
                .body::<CreateSession>()
                .idempotent()
                .response::<Session>(201)
                .response::<Session>(200)
                .errors(&[MachineNotFound, NotFound, IdempotencyMismatch, Conflict, Unavailable])
                .handler(sessions::create),
        )
        .row(
            get("/v1/sessions")
                .access(Access::User)
                .summary(TAG, "Lists your sessions, the one changed last first.")
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .handler(sessions::list),
        )
        .row(
            get("/v2/sessions/active")
                .access(Access::User)
                .summary(TAG, "Lists your sessions that have not ended.")
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .handler(sessions::list_active),
        )
        .row(
            get("/v1/sessions/{id}")
                .access(Access::User)
                .summary(TAG, "Reads a session.")
                .response::<Session>(200)
                .errors(&[NotFound])
                .handler(sessions::read),
        )
        .row(
            patch("/v1/sessions/{id}")
                .access(Access::User)
                .summary(
                    TAG,
                    "Changes a session: its metadata, agent state, status, archive or key; or tells that it is alive.",
                )
                .body::<UpdateSession>()
                .response::<Session>(200)
                .errors(&[NotFound, Forbidden, VersionMismatch])
                .handler(sessions::update),
        )
        .row(
            delete("/v1/sessions/{id}")
                .access(Access::User)
                .summary(TAG, "Deletes a session for everyone, with its messages, shares and link.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .handler(sessions::remove),
        )
}

fn messages_of(routes: Routes) -> Routes {
    const TAG: &str = "Messages";
    routes
        .row(
            post("/v3/sessions/{id}/messages")
                .access(Access::User)
                .summary(
                    TAG,
                    "Appends a message, or 1 to 200 at once; the same localId again answers with the first record.",
                )
                .body::<AppendRequest>()
                .response::<Message>(201)
                .response::<Message>(200)
                .response::<AppendedMessages>(201)
                .response::<AppendedMessages>(200)
                .errors(&[NotFound, Forbidden, Unavailable])
                .handler(messages::append),
        )
        .row(
            get("/v3/sessions/{id}/messages")
                .access(Access::User)
                .summary(TAG, "Reads a part of the history.")
                .query::<messages::WindowQuery>()
                .response::<MessagePage>(200)
                .errors(&[NotFound])
                .handler(messages::page),
        )
        .row(
            get("/v3/sessions/{id}/messages/stream")
                .access(Access::User)
                .summary(TAG, "Follows the session live, as Server-Sent Events.")
                .query::<stream::StreamQuery>()
                .response_as(200, "text/event-stream")
                .errors(&[NotFound])
                .handler(stream::open),
        )
}

fn shares_of(routes: Routes) -> Routes {
    const TAG: &str = "Private sharing";
    routes
        .row(
            get("/v1/sessions/{id}/shares")
                .access(Access::User)
                .summary(TAG, "Lists the users that the session is shared with, newest first; the owner's only.")
                .query::<shares::ListQuery>()
                .response::<SharePage>(200)
                .errors(&[NotFound, Forbidden, InvalidCursor])
                .handler(shares::list),
        )
        .row(
            post("/v1/sessions/{id}/shares")
                .access(Access::User)
                .summary(TAG, "Shares the session with a user, or replaces the share that is there.")
                .body::<CreateShare>()
                .response::<Share>(201)
                .response::<Share>(200)
                .errors(&[NotFound, Forbidden, UserNotFound, Conflict, Unavailable])
                .handler(shares::create),
        )
        .row(
            patch("/v1/sessions/{id}/shares/{userId}")
                .access(Access::User)
                .summary(TAG, "Changes a user's access level or sealed key.")
                .body::<UpdateShare>()
                .response::<Share>(200)
                .errors(&[NotFound, Forbidden])
                .handler(shares::update),
        )
        .row(
            delete("/v1/sessions/{id}/shares/{userId}")
                .access(Access::User)
                .summary(TAG, "Ends a user's access.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .handler(shares::remove),
        )
}

fn public_links_of(routes: Routes) -> Routes {
    const TAG: &str = "Public sharing";
    routes
        .row(
            post("/v1/sessions/{id}/public-share")
                .access(Access::User)
                .summary(TAG, "Makes the session's public link, or makes it anew; the old one is dead then.")
                .optional_body::<CreateLink>()
                .response::<Link>(201)
                .response::<Link>(200)
                .errors(&[NotFound, Forbidden])
                .handler(public_links::create),
        )
        .row(
            delete("/v1/sessions/{id}/public-share")
                .access(Access::User)
                .summary(TAG, "Ends the public link and every viewing through it.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .handler(public_links::remove),
        )
        .row(
            get("/v1/public-sessions/{token}")
                .access(Access::Public)
                .summary(
                    TAG,
                    "Reads a publicly shared session: one use, or none with the X-View-Token of an earlier answer.",
                )
                .query::<messages::WindowQuery>()
                .response::<PublicView>(200)
                .errors(&[LinkNotFound])
                .handler(public_links::view),
        )
        .row(
            get("/v1/public-sessions/{token}/stream")
                .access(Access::Public)
                .summary(TAG, "Follows a publicly shared session live, with an X-View-Token.")
                .query::<stream::StreamQuery>()
                .response_as(200, "text/event-stream")
                .errors(&[LinkNotFound])
                .handler(public_links::watch),
        )
}
