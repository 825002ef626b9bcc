//! Heads that pass and heads that must not, whole and in pieces.

use super::*;
use ensemble_types::problem::Code;

const LIMITS: HeadLimits = HeadLimits { fields: 8, head: 512, body: 1000 };

fn whole(head: &str) -> Result<Progress, Refusal> {
    HeadScanner::default().scan(head.as_bytes(), &LIMITS)
}

fn code(head: &str) -> Option<Code> {
    whole(head).err().map(|refusal| refusal.code)
}

#[test]
fn a_plain_head_is_complete_at_its_end() {
    let head = "GET /v1 HTTP/1.1\r\nHost: a\r\nX: y z\t\r\n\r\n";
    let with_more = format!("{head}GET");
    assert_eq!(whole(&with_more), Ok(Progress::Complete { len: head.len(), framing: Framing::None }));
}

#[test]
fn every_cut_gives_the_same_answer() {
    let head = "POST http://h:1/v1 HTTP/1.1\r\nContent-Length: 12\r\nHost: h:1\r\n\r\n";
    let mut scanner = HeadScanner::default();
    for cut in 1..head.len() {
        assert_eq!(scanner.scan(&head.as_bytes()[..cut], &LIMITS), Ok(Progress::More), "cut at {cut}");
    }
    let complete = Progress::Complete { len: head.len(), framing: Framing::Length(12) };
    assert_eq!(scanner.scan(head.as_bytes(), &LIMITS), Ok(complete));
}

#[test]
fn framing_is_read() {
    for (fields, framing) in [
        ("Content-Length: 7\r\n", Framing::Length(7)),
        ("content-length:0\r\n", Framing::None),
        ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
        ("TRANSFER-ENCODING:  Chunked \r\n", Framing::Chunked),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(whole(&head), Ok(Progress::Complete { len: head.len(), framing }), "{fields}");
    }
}

#[test]
fn malformed_fields_are_refused() {
    for fields in [
        "Host: a\nX: y\r\n",
        "Host: a\r\nX: y\n",
        "Host: a\r\nX: a\rb\r\n",
        "Host: a\r\n X: folded\r\n",
        "Host: a\r\n\tfolded\r\n",
        "Host: a\r\nX : y\r\n",
        "Host: a\r\n: y\r\n",
        "Host: a\r\nno colon\r\n",
        "Host: a\r\nX\u{1}: y\r\n",
        "Host: a\r\nX: \u{0}\r\n",
        "Host: a\r\nX: \u{7f}\r\n",
        "Host: a\r\nX(): y\r\n",
        "X: no host\r\n",
        "Host:\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a/b@c\r\n",
        "Host: user@a\r\n",
        "Host: a b\r\n",
        "Host: a:b\r\n",
        "Host: a:99999\r\n",
        "Host: a:+1\r\n",
        "Host: [::1\r\n",
        "Host: [x]\r\n",
        "Host: a, b\r\n",
        "Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
        "Host: a\r\nContent-Length: 5, 5\r\n",
        "Host: a\r\nContent-Length: +5\r\n",
        "Host: a\r\nContent-Length: -5\r\n",
        "Host: a\r\nContent-Length: 0x5\r\n",
        "Host: a\r\nContent-Length: 5 5\r\n",
        "Host: a\r\nContent-Length:\r\n",
        "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked, chunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: identity\r\n",
        "Host: a\r\nTransfer-Encoding: xchunked\r\n",
        "Host: a\r\nTransfer-Encoding: \u{b}chunked\r\n",
        "Host: a\r\nTransfer-Encoding:\r\n",
        "Host: a\r\nUpgrade: websocket\r\n",
    ] {
        assert_eq!(code(&format!("POST / HTTP/1.1\r\n{fields}\r\n")), Some(Code::InvalidArgument), "{fields:?}");
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / http/1.1",
        "GET /",
        "GET",
        "",
        "G(T / HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET * HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET //x HTTP/1.1",
        "GET /%2e HTTP/1.1",
        "GET http://other/ HTTP/1.1",
    ] {
        assert_eq!(code(&format!("{line}\r\nHost: a\r\n\r\n")), Some(Code::InvalidArgument), "{line:?}");
    }
}

#[test]
fn methods_that_nobody_takes_are_405() {
    for method in ["CONNECT", "TRACE", "PROPFIND", "get", "REFUSED"] {
        assert_eq!(code(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")), Some(Code::MethodNotAllowed), "{method}");
    }
}

#[test]
fn hosts_of_every_kind_pass() {
    for host in ["a", "a.b-c_d", "127.0.0.1:8080", "[::1]", "[::1]:80", "EXAMPLE.com:443"] {
        assert!(whole(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).is_ok(), "{host}");
    }
}

#[test]
fn absolute_form_must_equal_host() {
    assert!(whole("GET http://A:80/x HTTP/1.1\r\nHost: a:80\r\n\r\n").is_ok());
    assert_eq!(code("GET http://a:80/x HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Code::InvalidArgument));
    assert_eq!(code("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Code::InvalidArgument));
}

#[test]
fn sizes_are_bounded() {
    let fields: String = (0..9).map(|n| format!("X{n}: y\r\n")).collect();
    assert_eq!(code(&format!("GET / HTTP/1.1\r\n{fields}\r\n")), Some(Code::HeadersTooLarge));
    assert_eq!(
        code(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(600))),
        Some(Code::HeadersTooLarge)
    );
    assert_eq!(code(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(600))), Some(Code::HeadersTooLarge));
    assert_eq!(code(&format!("GET /{}", "y".repeat(600))), Some(Code::UriTooLong));
    assert_eq!(code("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"), Some(Code::PayloadTooLarge));
    assert_eq!(
        code("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
        Some(Code::PayloadTooLarge)
    );
}

#[test]
fn a_stray_cr_or_lf_is_seen_before_the_head_is_complete() {
    for head in ["GET / HTTP/1.1\n", "GET / HT\rTP", "GET / HTTP/1.1\r\nHost: a\n", "\n", "\r\n"] {
        assert_eq!(code(head), Some(Code::InvalidArgument), "{head:?}");
    }
    assert_eq!(whole("GET / HTTP/1.1\r"), Ok(Progress::More));
}
