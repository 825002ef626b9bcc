//! The table of the public routes.

mod events;

use ensemble_chassis::{Access, Required, Routes, Tag, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::events::{PublicSessionEvent, SessionEvent};
use ensemble_types::links::{CreateLink, Link, LinkState, PublicView};
use ensemble_types::live::{LiveFrames, LiveFramesSent};
use ensemble_types::messages::{AppendMessage, AppendMessages, AppendedMessages, Message, MessagePage};
use ensemble_types::problem::Code::{
    Conflict, Forbidden, IdempotencyMismatch, InvalidCursor, KeyEpochOld, LeaseLost, LinkNotFound, MachineNotFound,
    NotFound, QuotaExceeded, Unavailable, UserNotFound, VersionMismatch,
};
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};

use crate::handlers::{live, messages, public_links, sessions, shares, stream};

/// Metadata and agent state at their largest, when every character is escaped (`\u0001`).
const MAX_SESSION: usize = 8 << 20;

/// A content at its largest, when every character is escaped, and what is around it.
const MAX_MESSAGE: usize = 7 << 20;

/// 64 frames of 16 KiB, and what is around them.
const MAX_LIVE: usize = 3 << 19;

const SESSIONS: Tag = Tag("Sessions", "Conversations with agents, and hints of what has changed.");
const MESSAGES: Tag = Tag("Messages", "What was said in a session, sealed by its clients.");
const PRIVATE_SHARING: Tag = Tag("Private sharing", "Sessions that other users may read, write to or manage.");
const PUBLIC_SHARING: Tag = Tag("Public sharing", "Sessions that everybody with a link may read.");

pub(crate) fn table() -> Routes {
    events::add(public_link_routes(share_routes(message_routes(session_routes(Routes::new())))))
}

fn session_routes(routes: Routes) -> Routes {
    routes
        .row(
            post("/v1/sessions")
                .access(Access::UserOrMachine)
                .operation(
                    SESSIONS,
                    "createSession",
                    "Creates a session, on one of your machines or on none. The same tag returns the same session. A \
                     machine's token makes it hosted.",
                )
                .about(
                    "Metadata and the key are sealed by the client and never read by the server. A machine \
                     must be yours. `contentEpoch` is stored as it comes and not compared with the list.",
                )
                .body::<CreateSession>()
                .max_body(MAX_SESSION)
                .idempotent()
                .response::<Session>(201)
                .response::<Session>(200)
                .errors(&[
                    MachineNotFound,
                    NotFound,
                    Forbidden,
                    IdempotencyMismatch,
                    Conflict,
                    QuotaExceeded,
                    Unavailable,
                ])
                .handler(sessions::create),
        )
        .row(
            get("/v1/sessions")
                .access(Access::UserOrMachine)
                .operation(
                    SESSIONS,
                    "listSessions",
                    "Lists your sessions, the most recently changed first; for a machine, those that it hosts.",
                )
                .about(
                    "With `include=shared` also those that others share with you. The order is that of the minute of `updatedAt`, \
                     and within a minute that of the id: sort what you show. Heartbeats and `attention` do not count as a change. \
                     With `changedSince` a client that was away reads only what has changed, or was shared with you, meanwhile. Begin a minute before the \
                     newest `updatedAt` that you know, because a change can become visible after a later one. Sessions that were \
                     deleted are not in a list.",
                )
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .handler(sessions::list),
        )
        .row(
            get("/v2/sessions/active")
                .access(Access::UserOrMachine)
                .operation(SESSIONS, "listActiveSessions", "Lists your sessions that have not ended.")
                .about("The same as `GET /v1/sessions` without what has ended.")
                .query::<sessions::ListQuery>()
                .response::<SessionPage>(200)
                .errors(&[InvalidCursor])
                .handler(sessions::list_active),
        )
        .row(
            get("/v1/sessions/{id}")
                .access(Access::UserOrMachine)
                .operation(SESSIONS, "getSession", "Reads a session.")
                .about(
                    "By its id or its ref. A user with whom it is shared gets `encryptedKey`, and not the \
                     owner's `encryptionKey` and `tag`.",
                )
                .response::<Session>(200)
                .errors(&[NotFound])
                .in_turn()
                .etag()
                .handler(sessions::read),
        )
        .row(
            patch("/v1/sessions/{id}")
                .access(Access::UserOrMachine)
                .operation(
                    SESSIONS,
                    "updateSession",
                    "Changes a session's metadata, agent state, status, archived flag, key or what it wants, \
                     or sends a heartbeat.",
                )
                .about(
                    "Metadata and agent state need admin access, a heartbeat needs edit access, and \
                     everything else is for the owner. Send the version that you have read to learn of \
                     changes by others.",
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
                .operation(
                    SESSIONS,
                    "deleteSession",
                    "Deletes a session for everyone, with its messages, shares and link.",
                )
                .about("Only for the owner. Streams of the session end at once.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .handler(sessions::remove),
        )
}

fn message_routes(routes: Routes) -> Routes {
    routes
        .row(
            post("/v3/sessions/{id}/messages")
                .access(Access::UserOrMachine)
                .operation(
                    MESSAGES,
                    "appendMessage",
                    "Appends a message. A repeated localId returns the message it was first used for.",
                )
                .about(
                    "The content is sealed by the client. `seq` rises by one with each message of the session and has no gaps. \
                     Needs edit access; a session that has ended still takes messages.",
                )
                .body::<AppendMessage>()
                .max_body(MAX_MESSAGE)
                .response::<Message>(201)
                .response::<Message>(200)
                .errors(&[NotFound, Forbidden, KeyEpochOld, QuotaExceeded, Unavailable])
                .handler(messages::append),
        )
        .row(
            post("/v3/sessions/{id}/messages/batch")
                .access(Access::UserOrMachine)
                .operation(
                    MESSAGES,
                    "appendMessages",
                    "Appends 1 to 200 messages. Either all are stored or none.",
                )
                .about(
                    "The answer has them in the order of the request: 201 when at least one is new, 200 when all were stored \
                     before. Otherwise as one message.",
                )
                .body::<AppendMessages>()
                .max_body(16 << 20)
                .response::<AppendedMessages>(201)
                .response::<AppendedMessages>(200)
                .errors(&[NotFound, Forbidden, KeyEpochOld, QuotaExceeded, Unavailable])
                .handler(messages::append_several),
        )
        .row(
            get("/v3/sessions/{id}/messages")
                .access(Access::UserOrMachine)
                .operation(MESSAGES, "listMessages", "Reads a page of the history.")
.about("With `after` the oldest come first, with `before` or neither the newest. With both, all \
                     between them.")
                .query::<messages::WindowQuery>()
                .response::<MessagePage>(200)
                .errors(&[NotFound])
                .handler(messages::page),
        )
        .row(
            get("/v3/sessions/{id}/messages/stream")
                .access(Access::UserOrMachine)
                .operation(MESSAGES, "followMessages", "Follows the session live, as Server-Sent Events.")
.about("A message's event has its `seq` as id, so a reader that connects again with \
                     `Last-Event-ID` misses none. Without it and without `after`, only new messages come. \
                     Other events have no id.")
                .query::<stream::StreamQuery>()
                .events::<SessionEvent>()
                .also_by_post("followMessagesByPost")
                .last_event_id()
                .errors(&[NotFound])
                .handler(stream::open),
        )
        .row(
            post("/v3/sessions/live")
                .access(Access::UserOrMachine)
                .operation(MESSAGES, "sendLiveFrames", "Passes frames on to the streams of sessions that the machine hosts, without storing them. More than 5 a second \
                     of a session are dropped.",
                )
.about("A frame is what an agent has said so far, before the message is complete. A reader may \
                     miss frames, and no frame is repeated.")
                .body::<LiveFrames>()
                .max_body(MAX_LIVE)
                .response::<LiveFramesSent>(200)
                .errors(&[NotFound, Forbidden])
                .handler(live::send),
        )
}

fn share_routes(routes: Routes) -> Routes {
    routes
        .row(
            get("/v1/sessions/{id}/shares")
                .access(Access::UserOrMachine)
                .operation(
                    PRIVATE_SHARING,
                    "listShares",
                    "Lists the users that the session is shared with, newest first. Only for the owner.",
                )
                .about("A user with whom the session is shared gets 403.")
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
                .operation(
                    PRIVATE_SHARING,
                    "createShare",
                    "Shares the session with a user, or replaces that user's share.",
                )
                .about(
                    "Seal the session's key to the content key of the user first. The owner gives each level; \
                     an admin gives view and edit.",
                )
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
                .operation(PRIVATE_SHARING, "updateShare", "Changes a user's access level or sealed key.")
                .about("An admin changes shares with view and edit access only.")
                .body::<UpdateShare>()
                .response::<Share>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(shares::update),
        )
        .row(
            delete("/v1/sessions/{id}/shares/{userId}")
                .access(Access::UserOrMachine)
                .operation(PRIVATE_SHARING, "deleteShare", "Ends a user's access.")
                .about(
                    "The user's open streams end within a second, and the session asks its owner for a new \
                     key. Everybody may remove their own share.",
                )
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(shares::remove),
        )
}

fn public_link_routes(routes: Routes) -> Routes {
    routes
        .row(
            get("/v1/sessions/{id}/public-share")
                .access(Access::UserOrMachine)
                .operation(
                    PUBLIC_SHARING,
                    "getPublicLink",
                    "How the session's public link stands, without its token. For the owner and admins.",
                )
                .about("The token cannot be read again. To get an address again, make a new link.")
                .response::<LinkState>(200)
                .errors(&[NotFound, Forbidden, LinkNotFound])
                .in_turn()
                .closed()
                .handler(public_links::state),
        )
        .row(
            post("/v1/sessions/{id}/public-share")
                .access(Access::UserOrMachine)
                .operation(
                    PUBLIC_SHARING,
                    "createPublicLink",
                    "Creates the session's public link. An existing link is replaced and stops working.",
                )
                .about(
                    "The token is shown only once. `encryptedKey` is the session's ring, sealed with a secret that is \
                     made for this link. Add that secret to the address as a fragment, which no server sees. Without a body the link has no limits, and ends when it is removed.",
                )
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
                .operation(
                    PUBLIC_SHARING,
                    "deletePublicLink",
                    "Removes the public link and ends every viewing through it.",
                )
                .about("Also succeeds when there is no link.")
                .response::<Deleted>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(public_links::remove),
        )
        .row(
            get("/v1/public-sessions/{token}")
                .access(Access::Public)
                .operation(
                    PUBLIC_SHARING,
                    "getPublicSession",
                    "Reads a publicly shared session. Costs one use, or none with the X-View-Token of an \
                     earlier response.",
                )
                .about(
                    "Messages have neither their sender nor their local id. A link that is unknown, used up, \
                     expired or removed is the same 404.",
                )
                .query::<messages::WindowQuery>()
                .header(
                    "X-View-Token",
                    Required::False,
                    "The `viewToken` of an earlier answer, which costs no further use.",
                )
                .response::<PublicView>(200)
                .errors(&[Forbidden, LinkNotFound])
                .in_turn()
                .secret()
                .handler(public_links::view),
        )
        .row(
            get("/v1/public-sessions/{token}/stream")
                .access(Access::Public)
                .operation(
                    PUBLIC_SHARING,
                    "followPublicSession",
                    "Follows a publicly shared session live, with an X-View-Token.",
                )
                .about("A message's event has its `seq` as id. The stream ends when the link does.")
                .query::<stream::StreamQuery>()
                .header("X-View-Token", Required::True, "The `viewToken` of an answer of the link.")
                .events::<PublicSessionEvent>()
                .also_by_post("followPublicSessionByPost")
                .last_event_id()
                .errors(&[LinkNotFound])
                .handler(public_links::watch),
        )
}
