//! Reads a request head byte for byte before the HTTP server sees it, and lets only that pass which no two readers can
//! understand differently (RFC 9112, sections 2.2, 3, 5 and 6).
//!
//! The server behind accepts more than this, a bare LF at the end of a header line for instance. A scanner keeps its
//! place between calls, so that a head that arrives one byte at a time costs no more than one that arrives whole.

use super::refusal::{BODY_TOO_LARGE, HEAD_TOO_LARGE, METHOD, Refusal, TOO_MANY_FIELDS, URI_TOO_LONG};
use super::request_target;

/// The sizes that a head and its body may have.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Header fields.
    pub fields: usize,
    /// Bytes of the whole head.
    pub head: usize,
    /// Bytes of the body.
    pub body: u64,
}

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// What is known after looking at some more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head goes on.
    More,
    /// The head ends after so many bytes.
    Complete { len: usize, framing: Framing },
}

/// The state of reading one head.
#[derive(Debug, Default)]
pub struct HeadScanner {
    /// Bytes that belong to lines already checked.
    checked: usize,
    /// Bytes searched for the end of the line.
    searched: usize,
    saw_request_line: bool,
    is_http_10: bool,
    /// Where the target's authority lies in the head, for comparison with Host.
    authority: Option<(usize, usize)>,
    fields: usize,
    has_host: bool,
    content_length: Option<u64>,
    is_chunked: bool,
}

impl HeadScanner {
    /// Looks at `head`, which holds everything since the head's first byte.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn scan(&mut self, head: &[u8], limits: &HeadLimits) -> Result<Progress, Refusal> {
        loop {
            let unsearched = head.get(self.searched..).unwrap_or_default();
            let Some(offset) = memchr::memchr(b'\n', unsearched) else {
                self.searched = head.len();
                return self.wait_for_more(head, limits);
            };
            let end = self.searched + offset;
            let line = head.get(self.checked..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").ok_or(BARE_LF)?;
            if memchr::memchr(b'\r', line).is_some() {
                return Err(BARE_CR);
            }
            let start = self.checked;
            self.checked = end + 1;
            self.searched = end + 1;
            if self.checked > limits.head {
                return Err(if self.saw_request_line { HEAD_TOO_LARGE } else { URI_TOO_LONG });
            }
            if !self.saw_request_line {
                self.request_line(line, start)?;
            } else if line.is_empty() {
                return Ok(Progress::Complete { len: self.checked, framing: self.finish()? });
            } else {
                self.field_line(line, head, limits)?;
            }
        }
    }

    /// The line is not complete: it may still be too long already, or have a stray CR.
    fn wait_for_more(&self, head: &[u8], limits: &HeadLimits) -> Result<Progress, Refusal> {
        if head.len() > limits.head {
            return Err(if self.saw_request_line { HEAD_TOO_LARGE } else { URI_TOO_LONG });
        }
        let line = head.get(self.checked..).unwrap_or_default();
        match memchr::memchr(b'\r', line) {
            Some(at) if at + 1 < line.len() => Err(BARE_CR),
            _ => Ok(Progress::More),
        }
    }

    fn request_line(&mut self, line: &[u8], start: usize) -> Result<(), Refusal> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::malformed(
                "The request line must be a method, a target and a version with one space between.",
            ));
        };
        self.is_http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Refusal::malformed("Speak HTTP/1.1.")),
        };
        if !matches!(method, b"GET" | b"HEAD" | b"POST" | b"PUT" | b"PATCH" | b"DELETE" | b"OPTIONS") {
            if !method.is_empty() && method.iter().all(|byte| is_token(*byte)) {
                return Err(METHOD);
            }
            return Err(Refusal::malformed("The method is not a token."));
        }
        let authority = request_target::check(target)?.0;
        self.authority = authority.map(|authority| {
            // The authority is a part of the target, which begins one space after the method.
            let from = start + method.len() + 1 + target.len() - target_after_scheme(target).len();
            (from, from + authority.len())
        });
        self.saw_request_line = true;
        Ok(())
    }

    fn field_line(&mut self, line: &[u8], head: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
        self.fields += 1;
        if self.fields > limits.fields {
            return Err(TOO_MANY_FIELDS);
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Refusal::malformed("Header fields may not be folded over lines."));
        }
        let colon = memchr::memchr(b':', line).ok_or(Refusal::malformed("A header field has no colon."))?;
        let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(Refusal::malformed("The name of a header field is not a token."));
        }
        if !value.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e | 0x80..)) {
            return Err(Refusal::malformed("A header field has a control character in its value."));
        }
        let value = value.trim_ascii();
        // Few names matter here, and their lengths differ from most others.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value, head),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.length(value, limits),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") && value.eq_ignore_ascii_case(b"websocket") => {
                Err(Refusal::malformed("There are no WebSockets here; streams are Server-Sent Events."))
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8], head: &[u8]) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Refusal::malformed("There is more than one Host field."));
        }
        if !is_valid_host(value) {
            return Err(Refusal::malformed("The Host field is not a host with an optional port."));
        }
        match self.authority.and_then(|(from, to)| head.get(from..to)) {
            Some(authority) if !authority.eq_ignore_ascii_case(value) => {
                Err(Refusal::malformed("The request target names another host than the Host field."))
            }
            _ => Ok(()),
        }
    }

    fn length(&mut self, value: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        if !is_number {
            return Err(Refusal::malformed("Content-Length is not a number."));
        }
        let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        if self.content_length.replace(length).is_some() {
            return Err(Refusal::malformed("There is more than one Content-Length."));
        }
        if length > limits.body {
            return Err(BODY_TOO_LARGE);
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.is_http_10 {
            return Err(Refusal::malformed("HTTP/1.0 has no Transfer-Encoding."));
        }
        if std::mem::replace(&mut self.is_chunked, true) || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::malformed("The one Transfer-Encoding taken here is `chunked`, once."));
        }
        Ok(())
    }

    fn finish(&self) -> Result<Framing, Refusal> {
        if !self.has_host {
            return Err(Refusal::malformed("There is no Host field."));
        }
        match (self.content_length, self.is_chunked) {
            (Some(_), true) => Err(Refusal::malformed("There are both Content-Length and Transfer-Encoding.")),
            (None, true) => Ok(Framing::Chunked),
            (None | Some(0), false) => Ok(Framing::None),
            (Some(length), false) => Ok(Framing::Length(length)),
        }
    }
}

const BARE_LF: Refusal = Refusal::malformed("A line ends with LF alone; lines end with CR LF.");
const BARE_CR: Refusal = Refusal::malformed("There is a CR inside a line.");

/// tchar of RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

fn target_after_scheme(target: &[u8]) -> &[u8] {
    let at = target.windows(3).position(|window| window == b"://").map_or(0, |at| at + 3);
    target.get(at..).unwrap_or_default()
}

/// A name, an IPv4 or a bracketed IPv6 address, and perhaps a port (RFC 3986, section 3.2, without userinfo).
fn is_valid_host(value: &[u8]) -> bool {
    let (host, port) = match value.first() {
        Some(b'[') => match value.iter().position(|byte| *byte == b']') {
            Some(end) => value.split_at(end + 1),
            None => return false,
        },
        _ => value.split_at(value.iter().position(|byte| *byte == b':').unwrap_or(value.len())),
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => std::str::from_utf8(digits)
            .is_ok_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()),
        _ => false,
    };
    let is_host = match host {
        [b'[', address @ .., b']'] => {
            std::str::from_utf8(address).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
        }
        name => {
            !name.is_empty()
                && name.len() <= 255
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        }
    };
    is_port && is_host
}

#[cfg(test)]
mod tests;
