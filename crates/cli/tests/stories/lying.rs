//! A server that lies: it passes every request on to the real one, and changes what that answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::ensemble::{Running, User, up_at};

/// What a lie changes of an answer: the line of the request (`GET /v1/devices`) and the answer.
type Lie = Box<dyn Fn(&str, &mut Value) + Send>;

/// Whether the request with this line is refused.
type Refuses = Box<dyn Fn(&str) -> bool + Send>;

/// The real server behind one that lies.
pub(crate) struct LyingServer {
    pub(crate) url: String,
    /// The real address.
    pub(crate) direct: String,
    state: Arc<Mutex<State>>,
    _up: Option<Running>,
    /// The account of the real server's operator.
    pub(crate) operator: User,
}

#[derive(Default)]
struct State {
    target: String,
    lie: Option<Lie>,
    refuses: Option<Refuses>,
    requests: Vec<String>,
}

const LONGEST: Duration = Duration::from_secs(60);

impl LyingServer {
    pub(crate) fn start() -> Self {
        let mut server = Self::before("");
        let arguments = ["up", "--listen", "127.0.0.1:0", "--json", "--no-runner", "--public-url", &server.url];
        let (up, printed) = up_at(&server.operator, &arguments);
        server.direct = printed["url"].as_str().unwrap().to_owned();
        server.state.lock().unwrap().target = server.direct.replace("http://", "");
        server._up = Some(up);
        server
    }

    /// In front of the real server at this address, which the caller starts.
    pub(crate) fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { target: address.to_owned(), ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let state = shared.clone();
                std::thread::spawn(move || pass_on(client?, &state));
            }
        });
        Self { url, direct: format!("http://{address}"), state, _up: None, operator: User::new(None) }
    }

    /// From now on answers are changed like this.
    pub(crate) fn lie(&self, lie: impl Fn(&str, &mut Value) + Send + 'static) {
        let mut state = self.state.lock().unwrap();
        state.lie = Some(Box::new(lie));
        state.requests.clear();
    }

    /// From now on these requests are answered with 500, and do not reach the real server.
    pub(crate) fn refuse(&self, is_refused: impl Fn(&str) -> bool + Send + 'static) {
        self.state.lock().unwrap().refuses = Some(Box::new(is_refused));
    }

    pub(crate) fn tell_the_truth(&self) {
        let mut state = self.state.lock().unwrap();
        (state.lie, state.refuses) = (None, None);
    }

    /// The lines of the requests since it lies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

/// One request and its answer (RFC 9112). The connection ends after it. A stream is passed on as it comes.
fn pass_on(mut client: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    client.set_read_timeout(Some(LONGEST))?;
    let (head, body) = read_request(&mut client)?;
    let line: String = head.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let target = state.lock().unwrap().target.clone();
    if state.lock().unwrap().refuses.as_ref().is_some_and(|is_refused| is_refused(&line)) {
        return client
            .write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    let mut server = TcpStream::connect(target)?;
    server.set_read_timeout(Some(LONGEST))?;
    let head = with(&head, &["connection", "expect"], "connection: close\r\n");
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    let head = read_head(&mut server)?;
    if head.contains("text/event-stream") {
        server.set_read_timeout(None)?;
        client.write_all(head.as_bytes())?;
        return std::io::copy(&mut server, &mut client).map(drop);
    }
    let mut body = Vec::new();
    server.read_to_end(&mut body)?;
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    let mut state = state.lock().unwrap();
    state.requests.push(line.clone());
    if let Some(lie) = &state.lie {
        body = changed(body, |answer| lie(&line, answer));
    }
    drop(state);
    let length = format!("content-length: {}\r\nconnection: close\r\n", body.len());
    let head = with(&head, &["connection", "content-length", "transfer-encoding"], &length);
    client.write_all(head.as_bytes())?;
    client.write_all(&body)
}

/// An answer that is no JSON is one text.
fn changed(body: Vec<u8>, lie: impl FnOnce(&mut Value)) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice(&body) {
        lie(&mut value);
        return value.to_string().into_bytes();
    }
    let Ok(text) = String::from_utf8(body.clone()) else { return body };
    let mut value = Value::String(text);
    lie(&mut value);
    value.as_str().map_or(body, |text| text.as_bytes().to_vec())
}

fn read_head(from: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && from.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn read_request(client: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let head = read_head(client)?;
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    Ok((head, body))
}

/// The head without these fields, and with others.
fn with(head: &str, without: &[&str], more: &str) -> String {
    let is_kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        !without.contains(&&*name)
    };
    let lines: String =
        head.lines().filter(|line| !line.is_empty()).filter(is_kept).map(|line| format!("{line}\r\n")).collect();
    format!("{lines}{more}\r\n")
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(&String::from_utf8_lossy(&body[..at]), 16).unwrap_or(0);
        let begin = at + 2;
        if length == 0 || body.len() < begin + length + 2 {
            break;
        }
        whole.extend_from_slice(&body[begin..begin + length]);
        body = &body[begin + length + 2..];
    }
    whole
}
