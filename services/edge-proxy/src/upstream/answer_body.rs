//! Takes the body of an answer out of its coding, piece by piece and without copying (RFC 9112, section 7.1).

use bytes::{Buf, Bytes, BytesMut};

use super::answer_head::AnswerFraming;

/// A chunk's size line may be this long, extensions included.
const MAX_LINE: usize = 1024;

/// Where in the body we are.
#[derive(Debug)]
pub enum AnswerBody {
    Over,
    Length(u64),
    UntilClose,
    /// A chunk's size comes next.
    ChunkSize,
    /// So many bytes of the chunk are still to come.
    ChunkData(u64),
    /// The line break after a chunk comes next.
    ChunkEnd,
    Trailers,
}

/// What the bytes so far give.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
}

/// The chunked coding is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked coding is broken")]
pub struct BadCoding;

impl AnswerBody {
    pub fn new(framing: AnswerFraming) -> Self {
        match framing {
            AnswerFraming::None => Self::Over,
            AnswerFraming::Length(length) => Self::Length(length),
            AnswerFraming::Chunked => Self::ChunkSize,
            AnswerFraming::UntilClose => Self::UntilClose,
        }
    }

    /// Takes the next piece off the front of `bytes`.
    ///
    /// # Errors
    /// The coding is broken; the connection is of no more use.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Piece, BadCoding> {
        loop {
            match self {
                Self::Over | Self::Length(0) => {
                    *self = Self::Over;
                    return Ok(Piece::End);
                }
                _ if bytes.is_empty() => return Ok(Piece::More),
                Self::UntilClose => return Ok(Piece::Data(bytes.split().freeze())),
                Self::Length(left) => return Ok(Piece::Data(take_some(bytes, left))),
                Self::ChunkData(0) => *self = Self::ChunkEnd,
                Self::ChunkData(left) => return Ok(Piece::Data(take_some(bytes, left))),
                Self::ChunkEnd => match bytes.get(..2) {
                    Some(b"\r\n") => {
                        bytes.advance(2);
                        *self = Self::ChunkSize;
                    }
                    Some(_) => return Err(BadCoding),
                    None => return Ok(Piece::More),
                },
                Self::ChunkSize => match take_line(bytes)? {
                    None => return Ok(Piece::More),
                    Some(line) => {
                        *self = match chunk_size(&line)? {
                            0 => Self::Trailers,
                            size => Self::ChunkData(size),
                        };
                    }
                },
                Self::Trailers => match take_line(bytes)? {
                    None => return Ok(Piece::More),
                    Some(line) if line.is_empty() => *self = Self::Over,
                    Some(_) => {}
                },
            }
        }
    }

    /// Does the end of the connection complete the body?
    pub fn may_end_by_close(&self) -> bool {
        matches!(self, Self::UntilClose | Self::Over)
    }
}

fn take_some(bytes: &mut BytesMut, left: &mut u64) -> Bytes {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= len as u64;
    bytes.split_to(len).freeze()
}

fn take_line(bytes: &mut BytesMut) -> Result<Option<BytesMut>, BadCoding> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return if bytes.len() > MAX_LINE { Err(BadCoding) } else { Ok(None) };
    };
    let mut line = bytes.split_to(end + 1);
    if !line.ends_with(b"\r\n") || line.len() > MAX_LINE {
        return Err(BadCoding);
    }
    line.truncate(line.len() - 2);
    Ok(Some(line))
}

fn chunk_size(line: &[u8]) -> Result<u64, BadCoding> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(BadCoding);
    }
    std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(BadCoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(framing: AnswerFraming, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), BadCoding> {
        let (mut body, mut bytes, mut out, mut ended) = (AnswerBody::new(framing), BytesMut::new(), Vec::new(), false);
        for piece in pieces {
            bytes.extend_from_slice(piece);
            loop {
                match body.take(&mut bytes)? {
                    Piece::Data(data) => out.extend_from_slice(&data),
                    Piece::More => break,
                    Piece::End => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        Ok((out, ended, bytes.len()))
    }

    #[test]
    fn chunks_are_joined_whole_and_in_pieces() {
        let coded = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
        let expected = (b"hello world".to_vec(), true, 0);
        assert_eq!(collect(AnswerFraming::Chunked, &[coded]), Ok(expected.clone()));
        let bytes: Vec<&[u8]> = coded.chunks(1).collect();
        assert_eq!(collect(AnswerFraming::Chunked, &bytes), Ok(expected));
    }

    #[test]
    fn a_length_leaves_what_follows() {
        assert_eq!(collect(AnswerFraming::Length(3), &[b"abcd"]), Ok((b"abc".to_vec(), true, 1)));
        assert_eq!(collect(AnswerFraming::Length(3), &[b"ab"]), Ok((b"ab".to_vec(), false, 0)));
        assert_eq!(collect(AnswerFraming::None, &[b""]), Ok((Vec::new(), true, 0)));
    }

    #[test]
    fn broken_coding_is_refused() {
        for coded in [&b"x\r\n"[..], b"5\nhello\r\n", b"5\r\nhelloXX", b"-5\r\n", b"\r\n", b"fffffffffffffffff\r\n"] {
            assert_eq!(collect(AnswerFraming::Chunked, &[coded]), Err(BadCoding), "{}", coded.escape_ascii());
        }
    }
}
