//! A server that responds as the test says. It can also break the connection in the middle of a response.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_client::{Client, Retry};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A request, as far as the tests look at it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// How the server responds to a request.
pub(crate) enum Reply {
    /// A whole answer.
    Json(u16, &'static str, String),
    /// As `Json`, with one more header.
    With(u16, &'static str, (&'static str, &'static str), String),
    /// A chunked body that is cut off after these bytes.
    Broken(&'static str, String),
    /// A chunked body with a proper end.
    Stream(&'static str, String),
    /// The connection is closed without a response.
    Nothing,
    /// A part of the response, if any, and nothing more. The connection stays open.
    Held(String),
}

pub(crate) fn json(status: u16, body: impl Into<String>) -> Reply {
    Reply::Json(status, "application/json", body.into())
}

pub(crate) fn problem(status: u16, code: &str) -> Reply {
    Reply::Json(status, "application/problem+json", problem_body(status, code))
}

pub(crate) fn problem_body(status: u16, code: &str) -> String {
    format!(r#"{{"type":"urn:x","title":"t","status":{status},"detail":"d","code":"{code}"}}"#)
}

/// Stops when it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
    accepting: AbortHandle,
}

impl Server {
    /// `answer` receives each request and the number of requests before it.
    pub(crate) async fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&seen));
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&log)));
            }
        });
        Self { url, seen, accepting: accepting.abort_handle() }
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn client(&self) -> Client {
        Client::builder(&self.url).retry(quick()).answer_within(Duration::from_secs(60)).build().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The default retry policy, with milliseconds instead of seconds.
pub(crate) fn quick() -> Retry {
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(20));
    Retry { attempts: 5, first, longest, deadline: Duration::from_secs(60) }
}

async fn serve<F: Fn(&Request, usize) -> Reply>(stream: TcpStream, answer: Arc<F>, seen: Arc<Mutex<Vec<Request>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let before = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let (text, continues) = match answer(&request, before) {
            Reply::Json(status, kind, body) => (whole(status, kind, "x-nothing: more", &body), true),
            Reply::With(status, kind, (name, value), body) => {
                (whole(status, kind, &format!("{name}: {value}"), &body), true)
            }
            Reply::Stream(kind, body) => (chunked(kind, &body) + "0\r\n\r\n", true),
            Reply::Broken(kind, body) => (chunked(kind, &body), false),
            Reply::Nothing => return,
            Reply::Held(part) => {
                if stream.write_all(part.as_bytes()).await.is_err() {
                    return;
                }
                std::future::pending().await
            }
        };
        if stream.write_all(text.as_bytes()).await.is_err() || !continues {
            return;
        }
    }
}

fn whole(status: u16, kind: &str, header: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{header}\r\n\r\n{body}")
}

fn chunked(kind: &str, body: &str) -> String {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    if body.is_empty() { head } else { format!("{head}{:x}\r\n{body}\r\n", body.len()) }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut words = lines.first()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers: HashMap<_, _> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { method, path, headers, body: String::from_utf8(body).unwrap() })
}
