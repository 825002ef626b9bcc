//! `ensemble web verify`: the page of a server of the same build is the same, and one byte that was changed on the way is found.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::ensemble::{User, up};

/// Changes an answer: the head of the request, and the answer with its head.
type Change = fn(&str, Vec<u8>) -> Vec<u8>;

/// A server between, until the test ends. Its address.
fn between(server: &str, change: Change) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let upstream = server.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, upstream) = (stream.unwrap(), upstream.clone());
            // A client that goes away is no failure of the server.
            std::thread::spawn(move || pass(stream, &upstream, change).ok());
        }
    });
    address
}

fn pass(mut stream: TcpStream, upstream: &str, change: Change) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..read]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut server = TcpStream::connect(upstream)?;
    server.set_read_timeout(Some(Duration::from_secs(60)))?;
    server.write_all(head.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes())?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let changed = change(&head, answer);
    match changed.as_slice() {
        // It says nothing until the client goes away.
        SILENT => stream.read(&mut piece).map(drop),
        [begin @ .., b'~'] if begin.ends_with(ENDLESS) => {
            stream.write_all(begin)?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        changed => stream.write_all(changed),
    }
}

/// As an answer: none.
const SILENT: &[u8] = b"";
/// At the end of an answer, before a `~`: bytes follow for as long as the client takes them.
const ENDLESS: &[u8] = b"connection: close\r\n\r\n";

/// Another answer to the request for the icon, and the same to all others.
fn icon(head: &str, answer: Vec<u8>, changed: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    if !is(head, "/icon.svg", "identity") {
        return answer;
    }
    changed(&answer)
}

/// With one more field in its head.
fn with_field(answer: &[u8], field: &str) -> Vec<u8> {
    let at = answer.windows(2).position(|some| some == b"\r\n").unwrap();
    [&answer[..at], b"\r\n", field.as_bytes(), &answer[at..]].concat()
}

/// Whether a request is for this path, in which `*` is anything, in this coding. The client writes names of fields in lower case.
fn is(head: &str, path: &str, coding: &str) -> bool {
    let (begin, end) = path.split_once('*').unwrap_or((path, ""));
    let asked = head.split(' ').nth(1).unwrap_or_default();
    let is_path = asked
        .strip_prefix(begin)
        .is_some_and(|rest| if path.contains('*') { rest.ends_with(end) } else { rest.is_empty() });
    is_path && head.contains(&format!("accept-encoding: {coding}\r\n"))
}

/// The last byte of the contents is another one.
fn flipped(mut answer: Vec<u8>) -> Vec<u8> {
    *answer.last_mut().unwrap() ^= 1;
    answer
}

/// The policy has another name, which no browser knows.
fn without_policy(answer: &[u8]) -> Vec<u8> {
    let at = answer.windows(25).position(|some| some.eq_ignore_ascii_case(b"\r\ncontent-security-policy"));
    let mut answer = answer.to_vec();
    answer[at.unwrap() + 2] = b'x';
    answer
}

#[test]
fn a_server_of_this_build_serves_the_page_of_this_program() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let found = person.json(&["web", "verify", &server]);
    assert_eq!((&found["isSame"], &found["differences"]), (&Value::Bool(true), &Value::Array(Vec::new())));
    assert!(found["files"].as_u64().unwrap() > 10, "{found}");
    let said = person.succeed(&["--server", &server, "web", "verify"]);
    assert!(said.contains("are the same"), "{said}");
}

#[test]
fn one_byte_that_is_changed_on_the_way_is_found_in_each_coding() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let changes: [(&str, &str, Change); 4] =
        [
            (
                "identity",
                "differs: SHA-256",
                |head, answer| if is(head, "/icon.svg", "identity") { flipped(answer) } else { answer },
            ),
            ("gzip", "cannot be decoded", |head, answer| {
                if is(head, "/assets/index-*.js", "gzip") { flipped(answer) } else { answer }
            }),
            (
                "br",
                "/assets/index-",
                |head, answer| if is(head, "/assets/index-*.js", "br") { flipped(answer) } else { answer },
            ),
            ("br", "content-security-policy", |head, answer| {
                if is(head, "/machines", "br") { without_policy(&answer) } else { answer }
            }),
        ];
    for (coding, said, change) in changes {
        let address = between(&server, change);
        let ended = person.run(&["web", "verify", &address, "--json"]);
        assert_eq!(ended.code, 1, "{coding}: {}{}", ended.out, ended.err);
        let found: Value = serde_json::from_str(&ended.out).unwrap();
        let differences = found["differences"].as_array().unwrap();
        assert_eq!(differences.len(), 1, "{found}");
        assert!(differences[0]["coding"] == coding && differences[0].to_string().contains(said), "{found}");
    }
}

#[test]
fn answers_that_are_no_file_are_differences() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let changes: [(&str, Change); 6] = [
        ("is answered with status 304 instead of the file", |head, answer| {
            icon(head, answer, |_| b"HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_vec())
        }),
        ("is answered with status 302 instead of the file", |head, answer| {
            icon(head, answer, |_| {
                b"HTTP/1.1 302 Found\r\nlocation: /favicon.ico\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                    .to_vec()
            })
        }),
        ("cannot be decoded from \\\"zstd\\\"", |head, answer| {
            icon(head, answer, |answer| with_field(answer, "content-encoding: zstd"))
        }),
        ("cannot be decoded from \\\"br\\\"", |head, answer| {
            icon(head, answer, |answer| with_field(answer, "content-encoding: br"))
        }),
        ("differs: it is longer than", |head, answer| {
            icon(head, answer, |_| {
                b"HTTP/1.1 200 OK\r\ncontent-type: image/svg+xml\r\nconnection: close\r\n\r\n~".to_vec()
            })
        }),
        ("is missing", |head, answer| {
            icon(head, answer, |_| b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec())
        }),
    ];
    for (said, change) in changes {
        let ended = person.run(&["web", "verify", &between(&server, change), "--json"]);
        assert_eq!(ended.code, 1, "{said}: {}{}", ended.out, ended.err);
        let found: Value = serde_json::from_str(&ended.out).unwrap();
        let differences = found["differences"].as_array().unwrap();
        assert!(differences.iter().all(|one| one["path"] == "/icon.svg" && one["coding"] == "identity"), "{found}");
        assert!(differences.iter().any(|one| one.to_string().contains(said)), "{said}: {found}");
    }
}

#[test]
fn a_file_that_does_not_come_is_named() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let silent = between(&server, |head, answer| icon(head, answer, |_| SILENT.to_vec()));
    let said = person.fail(&["web", "verify", &silent]);
    assert!(said.contains("/icon.svg (identity) could not be compared") && said.contains("did not respond"), "{said}");
    let cut = between(&server, |head, answer| icon(head, answer, |answer| answer[..answer.len() - 1].to_vec()));
    let said = person.fail(&["web", "verify", &cut]);
    assert!(said.contains("/icon.svg (identity) could not be compared") && said.contains("broke"), "{said}");
}

#[test]
fn a_server_of_another_version_is_named_with_what_to_do() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let other = between(&server, |head, answer| {
        if head.starts_with("GET /v1/version ") {
            let body = r#"{"name":"ensemble","version":"0.0.1","commit":null,"api":["v1"]}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            return format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes();
        }
        icon(head, answer, |answer| flipped(answer.to_vec()))
    });
    let ended = person.run(&["web", "verify", &other]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    for part in ["is version 0.0.1, and this program", "Compare with a program of the same build"] {
        assert!(ended.out.contains(part), "{}", ended.out);
    }
}
