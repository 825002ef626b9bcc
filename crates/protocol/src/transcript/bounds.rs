//! How long things may be, and how a long text is split and a long detail is cut.

/// The bytes of a body: 1 MiB when it is signed, sealed and encoded.
pub const MOST_BODY: usize = 640 << 10;
/// The bytes of a signed message as JSON: what fits into 1 MiB of base64url with the 33 bytes of the seal.
pub const MOST_SIGNED: usize = (1 << 20) / 4 * 3 - 33;
/// The bytes of a `localId` and of every other id.
pub const MOST_ID: usize = 128;
/// The bytes of all attachments of a prompt, as they are encoded.
pub const MOST_ATTACHMENTS: usize = 512 << 10;
/// The bytes of the detail of a permission request. A longer one is cut and can only be refused.
pub const MOST_DETAIL: usize = 256 << 10;
/// The bytes of the text of a live frame. Sealed, a frame has at most 16 KiB.
pub const MOST_FRAME_TEXT: usize = 10 << 10;
/// What the text of a message may cost when it is written: it leaves 64 KiB for the other fields.
pub const MOST_TEXT: usize = 576 << 10;

/// The bytes that a character takes in a signed message, where a text is JSON inside of JSON.
fn cost(letter: char) -> usize {
    match letter {
        '"' | '\\' => 4,
        '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 3,
        '\0'..='\u{1f}' => 7,
        other => other.len_utf8(),
    }
}

/// The bytes that a text takes in a signed message.
pub fn written_size(text: &str) -> usize {
    text.chars().map(cost).sum()
}

/// Splits a text into pieces that each fit into a message. An empty text is one empty piece.
pub fn split(text: &str) -> Vec<&str> {
    split_at(text, MOST_TEXT)
}

fn split_at(text: &str, most: usize) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    loop {
        let (piece, after) = rest.split_at(fitting(rest, most));
        pieces.push(piece);
        if after.is_empty() || piece.is_empty() {
            return pieces;
        }
        rest = after;
    }
}

/// The bytes at the beginning of a text that cost at most so much.
pub(crate) fn fitting(text: &str, most: usize) -> usize {
    let mut spent = 0;
    for (at, letter) in text.char_indices() {
        spent += cost(letter);
        if spent > most {
            return at;
        }
    }
    text.len()
}

/// The beginning of a text, at most `most` bytes and only whole characters, and how many bytes are missing.
pub fn beginning(text: &str, most: usize) -> (&str, u64) {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (kept, missing) = text.split_at(end);
    (kept, u64::try_from(missing.len()).unwrap_or(u64::MAX))
}

/// The end of a text, at most `most` bytes and only whole characters, and how many bytes are missing.
pub fn end(text: &str, most: usize) -> (&str, u64) {
    let least = text.len().saturating_sub(most);
    let start = (least..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let (missing, kept) = text.split_at(start);
    (kept, u64::try_from(missing.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_the_text_and_fit(text in "[a\"\\\\\n\0é😀]{0,200}", most in 7usize..50) {
            let pieces = split_at(&text, most);
            prop_assert_eq!(pieces.concat(), text.as_str());
            prop_assert!(pieces.iter().all(|piece| written_size(piece) <= most));
            prop_assert!(pieces.len() == 1 || pieces.iter().all(|piece| !piece.is_empty()));
        }

        #[test]
        fn the_size_is_that_of_json_in_json(text in "\\PC{0,50}|[\0-\x1f\"\\\\a]{0,50}") {
            let once = serde_json::to_string(&text).unwrap();
            let inner = &once[1..once.len() - 1];
            let twice = serde_json::to_string(inner).unwrap();
            prop_assert_eq!(written_size(&text), twice.len() - 2);
        }

        #[test]
        fn a_cut_keeps_whole_characters(text in "[aé😀]{0,40}", most in 0usize..100) {
            let (kept, missing) = beginning(&text, most);
            prop_assert!(kept.len() <= most && text.starts_with(kept));
            prop_assert_eq!(kept.len() as u64 + missing, text.len() as u64);
            let (kept, missing) = end(&text, most);
            prop_assert!(kept.len() <= most && text.ends_with(kept));
            prop_assert_eq!(kept.len() as u64 + missing, text.len() as u64);
        }
    }
}
