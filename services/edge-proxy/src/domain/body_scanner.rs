//! Follows the body of a request to its end, so that the next head is looked for in the right place, and refuses chunked
//! coding that readers disagree on (RFC 9112, section 7.1).
//!
//! The bytes go on to the server as they are; it decodes them, and the forwarder frames them anew. Chunk extensions are
//! therefore dropped and trailers, which nobody here reads, are refused.

use super::head_scanner::Framing;
use super::refusal::{BODY_TOO_LARGE, Refusal};

/// Extensions of one chunk may be this long in all; nobody needs any.
const MAX_EXTENSION: u16 = 256;

/// Where in the body the last byte seen was.
#[derive(Debug)]
pub enum BodyScanner {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Chunked),
}

/// The state of reading a chunked body.
#[derive(Debug)]
pub struct Chunked {
    state: ChunkState,
    /// Of the current chunk: its size while it is read, then the bytes still to come.
    size: u64,
    digits: u8,
    extension: u16,
    /// What the body may still add.
    budget: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Extension,
    Quoted,
    Escaped,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    LastCr,
    LastLf,
}

impl BodyScanner {
    /// `None` when there is no body.
    pub fn new(framing: Framing, max_body: u64) -> Option<Self> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Chunked {
                state: ChunkState::Size,
                size: 0,
                digits: 0,
                extension: 0,
                budget: max_body,
            })),
        }
    }

    /// Looks at the next bytes: how many belong to the body, and whether it ends with them.
    ///
    /// # Errors
    /// What is wrong with the coding, or that the body is too large.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            Self::Chunked(chunked) => chunked.scan(bytes),
        }
    }
}

impl Chunked {
    fn scan(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.state == ChunkState::Data {
                let left = usize::try_from(self.size).unwrap_or(usize::MAX);
                let taken = left.min(bytes.len() - at);
                self.size -= taken as u64;
                at += taken;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            at += 1;
            if self.state == ChunkState::LastLf {
                return if byte == b'\n' { Ok((at, true)) } else { Err(BAD_END) };
            }
            self.state = self.step(byte)?;
        }
        Ok((at, false))
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        match (self.state, byte) {
            (ChunkState::Size, b'\r') if self.digits > 0 => Ok(ChunkState::SizeLf),
            (ChunkState::Size, b';') if self.digits > 0 => Ok(ChunkState::Extension),
            (ChunkState::Size, digit) => self.size_digit(digit),
            (ChunkState::Extension | ChunkState::Quoted | ChunkState::Escaped, byte) => self.extension_byte(byte),
            (ChunkState::SizeLf, b'\n') => self.start_chunk(),
            (ChunkState::DataCr, b'\r') => Ok(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => Ok(ChunkState::Size),
            (ChunkState::LastCr, b'\r') => Ok(ChunkState::LastLf),
            (ChunkState::LastCr, _) => Err(BAD_END),
            _ => Err(Refusal::malformed("A chunk does not end where its size says.")),
        }
    }

    fn size_digit(&mut self, digit: u8) -> Result<ChunkState, Refusal> {
        let value = char::from(digit)
            .to_digit(16)
            .ok_or(Refusal::malformed("The size of a chunk is not a hexadecimal number."))?;
        self.digits += 1;
        if self.digits > 8 {
            return Err(BODY_TOO_LARGE);
        }
        self.size = self.size * 16 + u64::from(value);
        Ok(ChunkState::Size)
    }

    fn extension_byte(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        self.extension += 1;
        if self.extension > MAX_EXTENSION {
            return Err(Refusal::malformed("The extensions of a chunk are too long."));
        }
        match (self.state, byte) {
            (ChunkState::Extension, b'\r') => Ok(ChunkState::SizeLf),
            (ChunkState::Extension, b'"') => Ok(ChunkState::Quoted),
            (ChunkState::Quoted, b'"') => Ok(ChunkState::Extension),
            (ChunkState::Quoted, b'\\') => Ok(ChunkState::Escaped),
            (ChunkState::Escaped, b'\t' | 0x20..=0x7e) => Ok(ChunkState::Quoted),
            (state, b'\t' | 0x20..=0x7e) => Ok(state),
            _ => Err(Refusal::malformed("An extension of a chunk has a stray character or an open quote.")),
        }
    }

    fn start_chunk(&mut self) -> Result<ChunkState, Refusal> {
        self.budget = self.budget.checked_sub(self.size).ok_or(BODY_TOO_LARGE)?;
        self.digits = 0;
        self.extension = 0;
        Ok(if self.size == 0 { ChunkState::LastCr } else { ChunkState::Data })
    }
}

const BAD_END: Refusal =
    Refusal::malformed("The last chunk must be followed by an empty line; trailers are not taken.");

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::problem::Code;

    fn chunked(body: &[u8]) -> Result<(usize, bool), Refusal> {
        BodyScanner::new(Framing::Chunked, 100).expect("a body").scan(body)
    }

    #[test]
    fn a_length_is_counted_down() {
        let mut scanner = BodyScanner::new(Framing::Length(5), 100).expect("a body");
        assert_eq!(scanner.scan(b"abc"), Ok((3, false)));
        assert_eq!(scanner.scan(b"deGET"), Ok((2, true)));
    }

    #[test]
    fn chunks_are_followed_to_the_end() {
        for body in [
            &b"5\r\nhello\r\n0\r\n\r\n"[..],
            b"00000005\r\nhello\r\n0\r\n\r\n",
            b"5;a=b;c\r\nhello\r\n0;x=\"q\\\"\"\r\n\r\n",
            b"0\r\n\r\n",
            b"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
        ] {
            let mut with_more = body.to_vec();
            with_more.extend_from_slice(b"GET / HTTP/1.1");
            assert_eq!(chunked(&with_more), Ok((body.len(), true)), "{}", body.escape_ascii());
            let mut in_pieces = BodyScanner::new(Framing::Chunked, 100).expect("a body");
            for (at, byte) in body.iter().enumerate() {
                assert_eq!(in_pieces.scan(&[*byte]), Ok((1, at + 1 == body.len())), "{}", body.escape_ascii());
            }
        }
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        for body in [
            &b"\r\n"[..],
            b"5\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"5\r\nhello\rX",
            b"0x5\r\n",
            b"+5\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"g\r\n",
            b"5;a=\"b\r\nhello",
            b"5;a\nhello",
            b"5;\x00\r\n",
            b"5\r\r\n",
            b"0\r\nTrailer: x\r\n\r\n",
            b"0\r\n\n",
            b"0\r\n\rX",
            b";\r\n",
        ] {
            assert_eq!(
                chunked(body).map_err(|refusal| refusal.code),
                Err(Code::InvalidArgument),
                "{}",
                body.escape_ascii()
            );
        }
        let long = [&b"5;"[..], &[b'a'; 300]].concat();
        assert!(chunked(&long).is_err());
    }

    #[test]
    fn a_chunked_body_is_bounded() {
        assert_eq!(chunked(b"65\r\n"), Err(BODY_TOO_LARGE));
        assert_eq!(chunked(b"123456789\r\n"), Err(BODY_TOO_LARGE));
        let mut scanner = BodyScanner::new(Framing::Chunked, 8).expect("a body");
        assert_eq!(scanner.scan(b"5\r\nhello\r\n"), Ok((10, false)));
        assert_eq!(scanner.scan(b"5\r\n"), Err(BODY_TOO_LARGE));
    }
}
