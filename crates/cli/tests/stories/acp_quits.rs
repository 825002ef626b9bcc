//! An editor that quits in the middle of a turn: what it has sent is done all the same.

use serde_json::json;

use crate::acp::Editor;
use crate::ensemble::up;
use crate::live::{log, until};
use crate::place::Place;

#[test]
fn acp_interrupts_a_turn_when_its_editor_quits() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    for is_closed in [true, false] {
        let mut editor = Editor::start(user, &[], false);
        let session = editor.begin(&place.file(""));
        editor.prompt(&session, "[[hang]]");
        editor.sees("agent_message_chunk", "I begin");
        let params = json!({"sessionId": session});
        // The end of the input follows at once, without waiting for an answer.
        editor.tell(&if is_closed {
            json!({"request": "session/close", "params": params, "tag": 99})
        } else {
            json!({"notify": "session/cancel", "params": params})
        });
        editor.close();
        until("the interrupted turn", || {
            log(user, &session).iter().find(|body| body["type"] == "turn" && body["stopReason"] == "cancelled").cloned()
        });
        user.succeed(&["stop", &session]);
    }
}
