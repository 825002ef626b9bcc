//! Live frames: the newest end of a text that is still being written. They are not signed and not stored.

use serde::{Deserialize, Serialize};

use crate::transcript::bounds::{MOST_FRAME_TEXT, MOST_ID, end};

/// The newest end of one part of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    pub turn_id: String,
    /// As in [`crate::transcript::body::TextPart::part`].
    pub part: u32,
    /// Where in the part the text begins, in bytes.
    pub offset: u64,
    /// At most 10 KiB.
    pub text: String,
    /// It is a thought of the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thought: bool,
}

impl Frame {
    /// Reads a frame that was opened. Anything that is not one, or is too long, is nothing.
    pub fn read(opened: &[u8]) -> Option<Self> {
        let frame: Self = serde_json::from_slice(opened).ok()?;
        (frame.text.len() <= MOST_FRAME_TEXT && frame.turn_id.len() <= MOST_ID).then_some(frame)
    }
}

/// The frame that shows the end of a part as it is now.
pub fn frame(turn_id: &str, part: u32, whole: &str) -> Frame {
    let (text, offset) = end(whole, MOST_FRAME_TEXT);
    Frame { turn_id: turn_id.to_owned(), part, offset, text: text.to_owned(), thought: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_the_end_in_whole_characters() {
        let hello = Frame { turn_id: "t".into(), part: 2, offset: 0, text: "hello".into(), thought: false };
        assert_eq!(frame("t", 2, "hello"), hello);
        let written = serde_json::to_string(&hello).unwrap();
        assert_eq!(written, r#"{"turnId":"t","part":2,"offset":0,"text":"hello"}"#);
        let thought = Frame { thought: true, ..hello };
        assert_eq!(Frame::read(&serde_json::to_vec(&thought).unwrap()), Some(thought));
        let whole = "é".repeat(MOST_FRAME_TEXT);
        let long = frame("t", 0, &format!("x{whole}"));
        assert_eq!((long.offset, long.text.len()), (MOST_FRAME_TEXT as u64 + 1, MOST_FRAME_TEXT));
    }

    #[test]
    fn what_is_no_frame_is_nothing() {
        let good = serde_json::to_vec(&frame("t", 0, "x")).unwrap();
        assert!(Frame::read(&good).is_some());
        for bad in ["", "[]", "{\"turnId\":1}", "{\"turnId\":\"t\",\"part\":-1,\"offset\":0,\"text\":\"\"}"] {
            assert_eq!(Frame::read(bad.as_bytes()), None, "{bad}");
        }
        let long = Frame { text: "x".repeat(MOST_FRAME_TEXT + 1), ..frame("t", 0, "") };
        assert_eq!(Frame::read(&serde_json::to_vec(&long).unwrap()), None);
    }
}
