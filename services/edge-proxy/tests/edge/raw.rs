//! A client that sends exactly the given bytes, and reads answers strictly.

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use ensemble_testkit::SOON;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    /// `None` when the listener is closed.
    pub(crate) async fn connect_or_refused(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).await.ok().map(|stream| Self { stream, buffer: Vec::new() })
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has closed already is found when its answer is read.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// One request and its answer; `None` when the connection was reset before a byte of it came.
    pub(crate) async fn ask_or_reset(&mut self, request: &str) -> Option<Answer> {
        self.send(request).await;
        let mut byte = [0; 1];
        match timeout(SOON, self.stream.peek(&mut byte)).await.expect("an answer in time") {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            _ => Some(self.answer().await),
        }
    }

    /// Reads one answer; the next one stays in the buffer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.answer_to("GET").await
    }

    pub(crate) async fn answer_to(&mut self, method: &str) -> Answer {
        let (status, headers) = self.head().await;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if method == "HEAD" || status == 204 || status == 304 {
            return answer;
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk().await;
                if chunk.is_empty() {
                    break;
                }
                answer.body.extend(chunk);
            }
        } else {
            let length: usize = answer.header("content-length").expect("a length").parse().unwrap();
            self.fill(length).await;
            answer.body = self.buffer.drain(..length).collect();
        }
        answer
    }

    pub(crate) async fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            let len = self.buffer.len();
            self.fill(len + 1).await;
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        assert!(status_line.starts_with("HTTP/1."), "{status_line}");
        let status = status_line[9..12].parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        (status, headers.collect())
    }

    /// One chunk of a chunked body; empty at its end.
    pub(crate) async fn chunk(&mut self) -> Vec<u8> {
        let end = loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                break at;
            }
            let len = self.buffer.len();
            self.fill(len + 1).await;
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
        let size = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
        self.fill(size + 2).await;
        let mut chunk: Vec<u8> = self.buffer.drain(..size + 2).collect();
        assert_eq!(chunk.split_off(size), b"\r\n");
        chunk
    }

    /// Reads until the other side closes: what it still sent.
    pub(crate) async fn until_closed(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        // A reset closes, too.
        let _ = timeout(SOON, self.stream.read_to_end(&mut rest)).await.expect("closed in time");
        rest
    }

    /// Reads until the other side closes or `time` is over: what it sent.
    pub(crate) async fn for_at_most(&mut self, time: Duration) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        let _ = timeout(time, self.stream.read_to_end(&mut rest)).await;
        rest
    }

    async fn fill(&mut self, wanted: usize) {
        while self.buffer.len() < wanted {
            let mut piece = [0; 4096];
            let len = timeout(SOON, self.stream.read(&mut piece)).await.expect("an answer in time").unwrap();
            assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
            self.buffer.extend_from_slice(&piece[..len]);
        }
    }
}
