//! A server that lies: it passes every request on to the real one, and changes what that answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::ensemble::{Running, User, up_at};

/// What a lie changes of an answer: the line of the request (`GET /v1/devices`) and the answer.
type Lie = Box<dyn Fn(&str, &mut Value) + Send>;

/// The status and the body with which the request with this line is refused, if it is.
type Refuses = Box<dyn Fn(&str) -> Option<(u16, Value)> + Send>;

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
    /// Only programs whose name begins like this are lied to.
    listener: &'static str,
    /// The lines of the requests whose answers were changed.
    lied: Vec<String>,
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
        // A walk over the table makes many accounts.
        let unlimited = |user: User, name| user.with_variable(name, "0");
        let limits = ["LIMIT_NEW_ACCOUNTS", "LIMIT_SIGN_IN"];
        let operator = limits.into_iter().fold(User::new(None), unlimited);
        Self { url, direct: format!("http://{address}"), state, _up: None, operator }
    }

    /// From now on answers are changed like this.
    pub(crate) fn lie(&self, lie: impl Fn(&str, &mut Value) + Send + 'static) {
        self.lie_to("", lie);
    }

    /// The same for programs whose `User-Agent` begins like this.
    pub(crate) fn lie_to(&self, listener: &'static str, lie: impl Fn(&str, &mut Value) + Send + 'static) {
        let mut state = self.state.lock().unwrap();
        state.lie = Some(Box::new(lie));
        (state.listener, state.lied) = (listener, Vec::new());
        state.requests.clear();
    }

    /// The lines of the requests whose answers were changed since it lies.
    pub(crate) fn lied(&self) -> Vec<String> {
        self.state.lock().unwrap().lied.clone()
    }

    /// From now on these requests are answered with 500, and do not reach the real server.
    pub(crate) fn refuse(&self, is_refused: impl Fn(&str) -> bool + Send + 'static) {
        self.refuse_with(move |line| is_refused(line).then_some((500, Value::Null)));
    }

    /// The same with a status and a body.
    pub(crate) fn refuse_with(&self, refuses: impl Fn(&str) -> Option<(u16, Value)> + Send + 'static) {
        self.state.lock().unwrap().refuses = Some(Box::new(refuses));
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
    let agent = head.lines().find_map(|line| line.to_lowercase().strip_prefix("user-agent: ").map(str::to_owned));
    let target = state.lock().unwrap().target.clone();
    let refused = state.lock().unwrap().refused(&line);
    if let Some((status, body)) = refused {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let kind = if body.is_empty() { "" } else { "content-type: application/problem+json\r\n" };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} No\r\n{kind}content-length: {length}\r\nconnection: close\r\n\r\n");
        return client.write_all((answer + &body).as_bytes());
    }
    let mut server = TcpStream::connect(target)?;
    server.set_read_timeout(Some(LONGEST))?;
    let head = with(&head, &["connection", "expect"], "connection: close\r\n");
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    let head = read_head(&mut server)?;
    let agent = agent.unwrap_or_default();
    if head.contains("text/event-stream") {
        server.set_read_timeout(None)?;
        client.write_all(with(&head, &["transfer-encoding", "connection"], "connection: close\r\n").as_bytes())?;
        return pass_events_on(Pieces::of(server, &head), &mut client, |data| {
            state.lock().unwrap().lied(&line, &agent, data)
        });
    }
    let mut body = Vec::new();
    Pieces::of(server, &head).read_to_end(&mut body)?;
    let mut state = state.lock().unwrap();
    state.requests.push(line.clone());
    body = state.lied(&line, &agent, body);
    drop(state);
    let length = format!("content-length: {}\r\nconnection: close\r\n", body.len());
    let head = with(&head, &["connection", "content-length", "transfer-encoding"], &length);
    client.write_all(head.as_bytes())?;
    client.write_all(&body)
}

impl State {
    fn refused(&mut self, line: &str) -> Option<(u16, Value)> {
        let refused = self.refuses.as_ref()?(line)?;
        self.lied.push(line.to_owned());
        Some(refused)
    }

    /// What a program with this `User-Agent` is answered.
    fn lied(&mut self, line: &str, agent: &str, body: Vec<u8>) -> Vec<u8> {
        let Some(lie) = self.lie.as_ref().filter(|_| agent.starts_with(self.listener)) else { return body };
        let Some(lied) = changed(&body, |answer| lie(line, answer)) else { return body };
        self.lied.push(line.to_owned());
        lied
    }
}

/// A stream of events as it comes. The data of each event is a separate answer, which has one line.
fn pass_events_on(from: impl Read, client: &mut TcpStream, lied: impl Fn(Vec<u8>) -> Vec<u8>) -> std::io::Result<()> {
    for line in BufReader::new(from).split(b'\n') {
        let mut line = line?;
        if let Some(data) = line.strip_prefix(b"data: ") {
            line = [b"data: ".as_slice(), &lied(data.to_vec())].concat();
        }
        line.push(b'\n');
        client.write_all(&line)?;
    }
    Ok(())
}

/// A body as it comes (RFC 9112, section 7.1).
struct Pieces {
    server: TcpStream,
    is_chunked: bool,
    left: usize,
}

impl Pieces {
    fn of(server: TcpStream, head: &str) -> Self {
        Self { server, is_chunked: head.to_lowercase().contains("transfer-encoding: chunked"), left: 0 }
    }

    /// The length of the next piece, 0 at the end.
    fn length(&mut self) -> std::io::Result<usize> {
        let mut line = String::new();
        let mut byte = [0];
        while !(line.ends_with('\n') && line.len() > 2) && self.server.read(&mut byte)? == 1 {
            line.push(char::from(byte[0]));
        }
        Ok(usize::from_str_radix(line.trim(), 16).unwrap_or(0))
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if !self.is_chunked {
            return self.server.read(into);
        }
        if self.left == 0 {
            self.left = self.length()?;
        }
        let most = self.left.min(into.len());
        let read = self.server.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// An answer that is no JSON is one text. `None`: nothing was changed.
fn changed(body: &[u8], lie: impl FnOnce(&mut Value)) -> Option<Vec<u8>> {
    let json = serde_json::from_slice(body).ok();
    let is_json = json.is_some();
    let before = json.or_else(|| Some(Value::String(String::from_utf8(body.to_vec()).ok()?)))?;
    let mut after = before.clone();
    lie(&mut after);
    let text = if is_json { after.to_string() } else { after.as_str().unwrap_or_default().to_owned() };
    (after != before).then(|| text.into_bytes())
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
