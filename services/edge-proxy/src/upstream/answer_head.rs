//! Reads the head of a service's answer and how its body is delimited (RFC 9112, sections 4 and 6.3).

use std::mem::MaybeUninit;

use actix_http::header::{HeaderName, HeaderValue};
use actix_http::{Response, StatusCode};
use bytes::{Bytes, BytesMut};

use crate::domain::hop_headers::{Named, comes_down};

const MAX_FIELDS: usize = 64;
const MAX_HEAD: usize = 64 * 1024;
const NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-new-account");

/// The head of an answer.
#[derive(Debug)]
pub struct AnswerHead {
    /// The status and the fields that go on to the client.
    pub response: Response<()>,
    pub framing: AnswerFraming,
    /// What Content-Length said, also where there is no body (HEAD, 304).
    pub length: Option<u64>,
    /// May the connection carry another request?
    pub is_kept: bool,
    /// The service says that it closes the connection.
    pub is_farewell: bool,
    /// Identity tells the edge that a sign-in has made an account, which is counted by address.
    pub is_new_account: bool,
}

/// How the body of an answer is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFraming {
    None,
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// The service said something that is not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHead {
    #[error("the head is not HTTP/1.1: {0}")]
    Syntax(httparse::Error),
    #[error("the head is too large")]
    TooLarge,
    #[error("the length of the body is ambiguous")]
    Framing,
}

/// Takes a head off the front of `bytes`; `None` while it is not complete. Informational answers (1xx) are skipped.
///
/// # Errors
/// What is wrong with it; the connection is of no more use then.
pub fn parse(bytes: &mut BytesMut, answers_head: bool) -> Result<Option<AnswerHead>, BadHead> {
    loop {
        let Some(head) = parse_one(bytes, answers_head)? else { return Ok(None) };
        if !head.response.status().is_informational() {
            return Ok(Some(head));
        }
    }
}

/// A field as positions in the head, so that names and values can share its memory.
#[derive(Clone, Copy, Default)]
struct Field {
    name: (u32, u32),
    value: (u32, u32),
}

fn parse_one(bytes: &mut BytesMut, answers_head: bool) -> Result<Option<AnswerHead>, BadHead> {
    let mut fields = [Field::default(); MAX_FIELDS];
    let mut parsed = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut answer = httparse::Response::new(&mut []);
    let complete =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut answer, bytes, &mut parsed);
    let len = match complete.map_err(BadHead::Syntax)? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial if bytes.len() > MAX_HEAD => return Err(BadHead::TooLarge),
        httparse::Status::Partial => return Ok(None),
    };
    let (code, version) = (answer.code.unwrap_or(0), answer.version.unwrap_or(0));
    let status = StatusCode::from_u16(code).map_err(|_| BadHead::Syntax(httparse::Error::Status))?;
    let count = answer.headers.len();
    for (field, header) in fields.iter_mut().zip(answer.headers.iter()) {
        *field = Field { name: range(bytes, header.name.as_bytes()), value: range(bytes, header.value) };
    }
    let head = bytes.split_to(len).freeze();
    let mut reader = HeadReader::new(version);
    // Heads of answers, and their maps, are used again and again by the server.
    let mut response = Response::new(status).drop_body();
    for field in fields.iter().take(count) {
        let (name, value) = field.of(&head)?;
        reader.look_at(&name, &value)?;
        if comes_down(name.as_str()) {
            response.headers_mut().append(name, value);
        }
    }
    reader.named.retain_others(response.headers_mut());
    let framing = reader.framing(status, answers_head)?;
    // What HEAD leaves out may be without end, and some servers answer nothing else before it has ended.
    let may_go_on = answers_head && reader.length.is_none();
    let is_kept = reader.is_kept && framing != AnswerFraming::UntilClose && !may_go_on;
    let (length, is_farewell, is_new_account) = (reader.length, !reader.is_kept, reader.is_new_account);
    Ok(Some(AnswerHead { response, framing, length, is_kept, is_farewell, is_new_account }))
}

/// Where `part` lies within `whole`.
fn range(whole: &[u8], part: &[u8]) -> (u32, u32) {
    let from = part.as_ptr() as usize - whole.as_ptr() as usize;
    // Heads are far smaller than 4 GiB.
    let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    (position(from), position(from + part.len()))
}

impl Field {
    fn of(self, head: &Bytes) -> Result<(HeaderName, HeaderValue), BadHead> {
        let at = |(from, to): (u32, u32)| from as usize..to as usize;
        let name = head.get(at(self.name)).unwrap_or_default();
        let name = HeaderName::from_bytes(name).map_err(|_| BadHead::Syntax(httparse::Error::HeaderName))?;
        let value = HeaderValue::from_maybe_shared(head.slice(at(self.value)))
            .map_err(|_| BadHead::Syntax(httparse::Error::HeaderValue))?;
        Ok((name, value))
    }
}

struct HeadReader {
    named: Named,
    length: Option<u64>,
    is_chunked: bool,
    is_kept: bool,
    is_new_account: bool,
}

impl HeadReader {
    fn new(minor_version: u8) -> Self {
        Self {
            named: Named::default(),
            length: None,
            is_chunked: false,
            is_kept: minor_version == 1,
            is_new_account: false,
        }
    }

    fn look_at(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), BadHead> {
        use actix_http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
        let text = || value.to_str().map_err(|_| BadHead::Framing);
        if name == CONTENT_LENGTH {
            let text = text()?;
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let length = text.parse().ok().filter(|_| is_number).ok_or(BadHead::Framing)?;
            if self.length.replace(length).is_some_and(|known| known != length) {
                return Err(BadHead::Framing);
            }
        } else if name == TRANSFER_ENCODING {
            if self.is_chunked || !text()?.eq_ignore_ascii_case("chunked") {
                return Err(BadHead::Framing);
            }
            self.is_chunked = true;
        } else if name == CONNECTION {
            let closes = text()?.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"));
            self.is_kept &= !closes;
            self.named.add(value);
        } else if *name == NEW_ACCOUNT {
            self.is_new_account = true;
        }
        Ok(())
    }

    fn framing(&self, status: StatusCode, answers_head: bool) -> Result<AnswerFraming, BadHead> {
        let has_no_body = answers_head
            || status.is_informational()
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        match (self.length, self.is_chunked) {
            (Some(_), true) => Err(BadHead::Framing),
            _ if has_no_body => Ok(AnswerFraming::None),
            (None, true) => Ok(AnswerFraming::Chunked),
            (Some(0), false) => Ok(AnswerFraming::None),
            (Some(length), false) => Ok(AnswerFraming::Length(length)),
            (None, false) => Ok(AnswerFraming::UntilClose),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, answers_head: bool) -> Result<Option<AnswerHead>, BadHead> {
        parse(&mut BytesMut::from(text), answers_head)
    }

    fn framing(text: &str, answers_head: bool) -> AnswerFraming {
        read(text, answers_head).expect("valid").expect("complete").framing
    }

    #[test]
    fn a_head_is_taken_off_and_the_body_stays() {
        let mut bytes = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\nhi");
        let head = parse(&mut bytes, false).expect("valid").expect("complete");
        assert_eq!(
            (head.response.status(), head.framing, head.is_kept),
            (StatusCode::OK, AnswerFraming::Length(2), true)
        );
        assert_eq!(head.response.headers().get("x").map(HeaderValue::as_bytes), Some(&b"y"[..]));
        assert_eq!(&bytes[..], b"hi");
    }

    #[test]
    fn an_incomplete_head_waits() {
        assert!(matches!(read("HTTP/1.1 200 OK\r\nContent-Le", false), Ok(None)));
    }

    #[test]
    fn informational_answers_are_skipped() {
        let text =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\n\r\n";
        assert_eq!(read(text, false).expect("valid").expect("complete").response.status(), StatusCode::CREATED);
        assert!(matches!(read("HTTP/1.1 100 Continue\r\n\r\n", false), Ok(None)));
    }

    #[test]
    fn bodies_are_delimited_as_the_rfc_says() {
        assert_eq!(framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false), AnswerFraming::Chunked);
        assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n", false), AnswerFraming::UntilClose);
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false), AnswerFraming::None);
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true), AnswerFraming::None);
        assert_eq!(framing("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false), AnswerFraming::None);
        assert_eq!(framing("HTTP/1.1 204 No Content\r\n\r\n", false), AnswerFraming::None);
    }

    #[test]
    fn connections_end_when_the_service_says_so() {
        let kept = |text: &str| read(text, false).expect("valid").expect("complete").is_kept;
        assert!(kept("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!kept("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n"));
        assert!(!kept("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!kept("HTTP/1.1 200 OK\r\n\r\n"));
    }

    #[test]
    fn connections_end_with_what_head_leaves_out_unless_its_length_is_known() {
        let head = |text: &str| read(text, true).expect("valid").expect("complete");
        assert!(head("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").is_kept);
        for text in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
            let head = head(text);
            assert!(!head.is_kept && !head.is_farewell, "{text:?}: others go on using the service");
        }
        assert!(head("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n").is_farewell);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            assert!(read(text, false).is_err(), "{text:?}");
        }
        assert_eq!(
            read(&format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(70_000)), false).err(),
            Some(BadHead::TooLarge)
        );
    }
}
