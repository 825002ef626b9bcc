//! The table of the public routes.

use ensemble_chassis::{Access, Required, Routes, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::events::{AccountEvent, PublicSessionEvent, SessionEvent};
use ensemble_types::links::{CreateLink, Link, LinkState, PublicView};
use ensemble_types::live::{LiveFrames, LiveFramesSent};
use ensemble_types::messages::{AppendRequest, AppendedMessages, Message, MessagePage};
use ensemble_types::problem::Code::{
    Conflict, Forbidden, IdempotencyMismatch, InvalidCursor, KeyEpochOld, LeaseLost, LinkNotFound, MachineNotFound,
    NotFound, QuotaExceeded, Unavailable, UserNotFound, VersionMismatch,
};
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};

use crate::handlers::{hints, live, messages, public_links, sessions, shares, stream};

/// Metadata and agent state at their largest, when every character is escaped (`\u0001`).
const MAX_SESSION: usize = 8 << 20;

/// 64 frames of 16 KiB, and what is around them.
const MAX_LIVE: usize = 3 << 19;

pub(crate) fn table() -> Routes {
    public_link_routes(share_routes(message_routes(session_routes(Routes::new()))))
}

fn session_routes(routes: Routes) -> Routes {
    const TAG: &str = "Sessions";
    routes
        .row(
            post("/v1/sessions")
                .access(Access::UserOrMachine)
                .summary(TAG, "Creates a session on one of your machines. The same tag returns the same session. A machine's token makes it hosted.")
                .body::<CreateSession>()
                .max_body(MAX_SESSION)
                .idempotent()
                .response::<Session>(201)
                .response::<Session>(200)
                .errors(&[MachineNotFound, NotFound, Forbidden, IdempotencyMismatch, Conflict, QuotaExceeded, Unavailable])
                .handler(sessions::create),
        )
        .row(
            get("/v1/sessions")
                .access(Access::UserOrMachine)
                .summary(TAG, "Lists your sessions, the most recently changed first; for a machine, those that it hosts.")
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .in_turn()
                .handler(sessions::list),
        )
        .row(
            get("/v2/sessions/active")
                .access(Access::UserOrMachine)
                .summary(TAG, "Lists your sessions that have not ended.")
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .in_turn()
                .handler(sessions::list_active),
        )
        .row(
            get("/v1/sessions/{id}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Reads a session.")
                .response::<Session>(200)
                .errors(&[NotFound])
                .in_turn()
                .etag()
                .handler(sessions::read),
        )
        .row(
            patch("/v1/sessions/{id}")
                .access(Access::UserOrMachine)
                .summary(
                    TAG,
                    "Changes a session's metadata, agent state, status, archived flag, key or what it wants, or sends a heartbeat.",
                )
                .body::<UpdateSession>()
                .max_body(MAX_SESSION)
                .response::<Session>(200)
                .errors(&[NotFound, Forbidden, LeaseLost, VersionMismatch])
                .handler(sessions::update),
        )
        .row(
            delete("/v1/sessions/{id}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Deletes a session for everyone, with its messages, shares and link.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .handler(sessions::remove),
        )
        .row(
            get("/v1/events")
                .access(Access::UserOrMachine)
                .summary(
                    TAG,
                    "Hints of what has changed in your account, as Server-Sent Events. A machine gets those of its own sessions.",
                )
                .events::<AccountEvent>()
                .handler(hints::open),
        )
}

fn message_routes(routes: Routes) -> Routes {
    const TAG: &str = "Messages";
    routes
        .row(
            post("/v3/sessions/{id}/messages")
                .access(Access::UserOrMachine)
                .summary(
                    TAG,
                    "Appends a message, or 1 to 200 at once. A repeated localId returns the message it was first used for.",
                )
                .body::<AppendRequest>()
                .max_body(16 << 20)
                .response::<Message>(201)
                .response::<Message>(200)
                .response::<AppendedMessages>(201)
                .response::<AppendedMessages>(200)
                .errors(&[NotFound, Forbidden, KeyEpochOld, QuotaExceeded, Unavailable])
                .handler(messages::append),
        )
        .row(
            get("/v3/sessions/{id}/messages")
                .access(Access::UserOrMachine)
                .summary(TAG, "Reads a page of the history.")
                .query::<messages::WindowQuery>()
                .response::<MessagePage>(200)
                .errors(&[NotFound])
                .handler(messages::page),
        )
        .row(
            get("/v3/sessions/{id}/messages/stream")
                .access(Access::UserOrMachine)
                .summary(TAG, "Follows the session live, as Server-Sent Events.")
                .query::<stream::StreamQuery>()
                .events::<SessionEvent>()
                .last_event_id()
                .errors(&[NotFound])
                .handler(stream::open),
        )
        .row(
            post("/v3/sessions/live")
                .access(Access::UserOrMachine)
                .summary(
                    TAG,
                    "Passes frames on to the streams of sessions that the machine hosts, without storing them. More than 5 a second \
                     of a session are dropped.",
                )
                .body::<LiveFrames>()
                .max_body(MAX_LIVE)
                .response::<LiveFramesSent>(200)
                .errors(&[NotFound, Forbidden])
                .handler(live::send),
        )
}

fn share_routes(routes: Routes) -> Routes {
    const TAG: &str = "Private sharing";
    routes
        .row(
            get("/v1/sessions/{id}/shares")
                .access(Access::UserOrMachine)
                .summary(TAG, "Lists the users that the session is shared with, newest first. Only for the owner.")
                .query::<shares::ListQuery>()
                .response::<SharePage>(200)
                .errors(&[NotFound, Forbidden, InvalidCursor])
                .in_turn()
                .closed()
                .handler(shares::list),
        )
        .row(
            post("/v1/sessions/{id}/shares")
                .access(Access::UserOrMachine)
                .summary(TAG, "Shares the session with a user, or replaces that user's share.")
                .body::<CreateShare>()
                .response::<Share>(201)
                .response::<Share>(200)
                .errors(&[NotFound, Forbidden, UserNotFound, Conflict, Unavailable])
                .closed()
                .handler(shares::create),
        )
        .row(
            patch("/v1/sessions/{id}/shares/{userId}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Changes a user's access level or sealed key.")
                .body::<UpdateShare>()
                .response::<Share>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(shares::update),
        )
        .row(
            delete("/v1/sessions/{id}/shares/{userId}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Ends a user's access.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(shares::remove),
        )
}

fn public_link_routes(routes: Routes) -> Routes {
    const TAG: &str = "Public sharing";
    routes
        .row(
            get("/v1/sessions/{id}/public-share")
                .access(Access::UserOrMachine)
                .summary(TAG, "How the session's public link stands, without its token. For the owner and admins.")
                .response::<LinkState>(200)
                .errors(&[NotFound, Forbidden, LinkNotFound])
                .in_turn()
                .closed()
                .handler(public_links::state),
        )
        .row(
            post("/v1/sessions/{id}/public-share")
                .access(Access::UserOrMachine)
                .summary(TAG, "Creates the session's public link. An existing link is replaced and stops working.")
                .optional_body::<CreateLink>()
                .response::<Link>(201)
                .response::<Link>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(public_links::create),
        )
        .row(
            delete("/v1/sessions/{id}/public-share")
                .access(Access::UserOrMachine)
                .summary(TAG, "Removes the public link and ends every viewing through it.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(public_links::remove),
        )
        .row(
            get("/v1/public-sessions/{token}")
                .access(Access::Public)
                .summary(
                    TAG,
                    "Reads a publicly shared session. Costs one use, or none with the X-View-Token of an earlier response.",
                )
                .query::<messages::WindowQuery>()
                .header("X-View-Token", Required::False, "The `viewToken` of an earlier answer, which costs no further use.")
                .response::<PublicView>(200)
                .errors(&[Forbidden, LinkNotFound])
                .in_turn()
                .secret()
                .handler(public_links::view),
        )
        .row(
            get("/v1/public-sessions/{token}/stream")
                .access(Access::Public)
                .summary(TAG, "Follows a publicly shared session live, with an X-View-Token.")
                .query::<stream::StreamQuery>()
                .header("X-View-Token", Required::True, "The `viewToken` of an answer of the link.")
                .events::<PublicSessionEvent>()
                .last_event_id()
                .errors(&[LinkNotFound])
                .handler(public_links::watch),
        )
}
