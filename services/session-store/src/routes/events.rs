//! The routes of an account's stream, and of the looks that a machine gets by it.

use ensemble_chassis::{Access, Routes, Tag, get, post};
use ensemble_types::events::AccountEvent;
use ensemble_types::looks::{AnswerLook, AskLook, LookAnswerTaken, LookAnswered};
use ensemble_types::problem::Code::{Forbidden, MachineAway, MachineNotFound, NotFound, Unavailable};

use super::SESSIONS;
use crate::handlers::{hints, looks};

/// A question of 16 KiB at its largest, when every character is escaped, and what is around it.
const MAX_QUESTION: usize = 128 << 10;

/// An answer of 1 MiB, and what is around it. Sealed values have no character that is escaped.
const MAX_ANSWER: usize = 5 << 18;

const LOOKS: Tag = Tag("Looks", "What devices read on machines. Nothing stores it.");

/// Adds the routes of the stream and of looks.
pub(super) fn add(routes: Routes) -> Routes {
    routes
        .row(
            get("/v1/events")
                .access(Access::UserOrMachine)
                .operation(
                    SESSIONS,
                    "followAccount",
                    "Hints of what has changed in your account, as Server-Sent Events. A machine gets those \
                     of its own sessions.",
                )
                .about(
                    "A hint says what has changed, and not how: read it again. Hints have no ids and none is \
                     repeated, so read your lists again after each new connection. A token's end also ends \
                     the stream. A machine also gets the questions that are put to it, each once (`look`): it answers with \
                     `answerLook`.",
                )
                .events::<AccountEvent>()
                .also_by_post("followAccountByPost")
                .handler(hints::open),
        )
        .row(
            post("/v1/looks")
                .access(Access::User)
                .operation(
                    LOOKS,
                    "requestLook",
                    "Asks the machine that hosts a session, or a machine of yours, and waits up to 20 s for its answer.",
                )
                .about(
                    "Question and answer are sealed, and whether you get an answer is for the machine to say, by what is signed in \
                     the question. By `sessionId` it needs edit access to a session that a machine hosts. 409 MACHINE_AWAY: the \
                     machine has no `followAccount` open, or did not answer in time.",
                )
                .body::<AskLook>()
                .max_body(MAX_QUESTION)
                .response::<LookAnswered>(200)
                .errors(&[NotFound, Forbidden, MachineNotFound, MachineAway, Unavailable])
                .closed()
                .handler(looks::ask),
        )
        .row(
            post("/v1/looks/{id}/answer")
                .access(Access::UserOrMachine)
                .operation(LOOKS, "answerLook", "Answers a look, as the machine that was asked.")
                .about("Once, and while the asker waits. It is 404 again, later, and for any other machine.")
                .body::<AnswerLook>()
                .max_body(MAX_ANSWER)
                .response::<LookAnswerTaken>(200)
                .errors(&[NotFound, Forbidden])
                .closed()
                .handler(looks::answer),
        )
}
