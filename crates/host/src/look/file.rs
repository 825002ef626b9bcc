//! A part of a file.

use std::fs::File;
use std::io::Read;
use std::time::UNIX_EPOCH;

use ensemble_client::devices::encode;
use ensemble_protocol::seal::look::{FileKind, FilePart, MOST_PART, Refusal};
use ensemble_protocol::transcript::words::ReceiptCode;
use ensemble_types::signatures::digest;
use ensemble_types::time::Timestamp;

use super::refusal;

/// Of a file that are shown.
const MOST_SHOWN: u64 = 512 << 10;

/// The beginnings of pictures that a browser draws.
const PICTURES: [&[u8]; 4] = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"];

/// # Errors
/// It cannot be read.
pub(super) fn part(mut file: File, is_svg: bool, from: u64) -> Result<FilePart, Refusal> {
    let unread =
        |error: std::io::Error| refusal(ReceiptCode::Unsupported, &format!("The file cannot be read: {error}."));
    let about = file.metadata().map_err(unread)?;
    let changed = about.modified().map_err(unread)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut shown = Vec::new();
    (&mut file).take(MOST_SHOWN).read_to_end(&mut shown).map_err(unread)?;
    let rest = usize::try_from(from).ok().and_then(|from| shown.get(from..));
    let rest = rest.ok_or_else(|| refusal(ReceiptCode::Superseded, "The file is shorter now. Open it again."))?;
    let data = encode(rest.get(..MOST_PART).unwrap_or(rest));
    Ok(FilePart {
        bytes: about.len(),
        at: Timestamp::from_micros(0).plus(changed),
        digest: digest(&shown),
        kind: kind(&shown, is_svg),
        data,
    })
}

fn kind(bytes: &[u8], is_svg: bool) -> FileKind {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(&b"WEBP"[..]);
    if is_webp || PICTURES.iter().any(|beginning| bytes.starts_with(beginning)) {
        return FileKind::Picture;
    }
    // The last character may be cut.
    let is_text = std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    match is_text && !bytes.contains(&0) {
        true if is_svg => FileKind::Picture,
        true => FileKind::Text,
        false => FileKind::other(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn of(bytes: &[u8], from: u64) -> Result<FilePart, Refusal> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        part(file, false, from)
    }

    #[test]
    fn a_file_comes_in_parts_of_its_beginning() {
        let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        let parts = [0, 256 << 10, 512 << 10].map(|from| of(&bytes, from).unwrap());
        let mut text = bytes.get(..512 << 10).unwrap().to_vec();
        assert!(parts.iter().all(|part| part.bytes == 700_000 && part.digest == digest(&text)));
        let data = |at: usize| encode(&text.split_off(at));
        assert_eq!([256 << 10, 0].map(data), [&parts[1], &parts[0]].map(|part| part.data.clone()));
        assert_eq!(parts[2].data, "");
        assert_eq!(of(b"abc", 4).unwrap_err().error, ReceiptCode::Superseded);
    }

    #[test]
    fn what_is_text_is_seen_by_its_bytes() {
        let long = "é".repeat(512 << 10);
        let cut = format!("x{long}");
        for (bytes, kind) in [
            (&b"text"[..], FileKind::Text),
            (cut.as_bytes(), FileKind::Text),
            (b"a\0b", FileKind::other()),
            (b"\xff\xfe", FileKind::other()),
            (b"\x89PNG\r\n\x1a\n", FileKind::Picture),
            (b"RIFF1234WEBP", FileKind::Picture),
        ] {
            assert_eq!(of(bytes, 0).unwrap().kind, kind);
        }
        assert_eq!(super::kind(b"<svg/>", true), FileKind::Picture);
    }
}
