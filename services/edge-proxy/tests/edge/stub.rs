//! A service that answers as a test says, and records every byte that reached it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// The request line and the fields, without the empty line.
    pub(crate) head: String,
    /// The body still in its coding.
    pub(crate) coded: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
}

impl Arrived {
    pub(crate) fn line(&self) -> &str {
        self.head.split("\r\n").next().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// What the stub does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Sends these bytes and waits for the next request.
    Say(Vec<u8>),
    /// Sends these bytes and closes.
    SayAndClose(Vec<u8>),
    /// Says nothing until the other side goes.
    Silence,
    /// Sends these bytes, then says nothing until the other side goes.
    SayAndStall(Vec<u8>),
}

/// A small JSON answer.
pub(crate) fn ok(body: &str) -> Reaction {
    Reaction::Say(
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .into_bytes(),
    )
}

pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Arrived>>>,
    gone: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

type React = Arc<dyn Fn(&Arrived) -> Reaction + Send + Sync>;

impl Stub {
    pub(crate) async fn start(react: impl Fn(&Arrived) -> Reaction + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), react)
    }

    pub(crate) fn on(listener: TcpListener, react: impl Fn(&Arrived) -> Reaction + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let (seen, gone): (Arc<Mutex<Vec<Arrived>>>, Arc<AtomicUsize>) = Default::default();
        let react: React = Arc::new(react);
        let (all_seen, all_gone) = (Arc::clone(&seen), Arc::clone(&gone));
        let accepting = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (seen, gone, react) = (Arc::clone(&all_seen), Arc::clone(&all_gone), Arc::clone(&react));
                tokio::spawn(async move {
                    serve(stream, connection, &seen, &react).await;
                    gone.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen, gone, accepting }
    }

    /// One that answers everything alike.
    pub(crate) async fn echo() -> Self {
        Self::start(|_| ok("{}")).await
    }

    pub(crate) fn seen(&self) -> Vec<Arrived> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(crate) fn last(&self) -> Arrived {
        self.seen().pop().expect("a request arrived")
    }

    /// How many of its connections have ended.
    pub(crate) fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, connection: usize, seen: &Mutex<Vec<Arrived>>, react: &React) {
    let mut buffer = Vec::new();
    loop {
        let Some(arrived) = read(&mut stream, &mut buffer, connection).await else { return };
        // The edge fetches keys by itself.
        let reaction = if arrived.line().contains("/.well-known/jwks.json") && !arrived.head.contains("x-forwarded-for")
        {
            ok(&super::limits::jwks())
        } else {
            seen.lock().unwrap().push(arrived.clone());
            react(&arrived)
        };
        match reaction {
            Reaction::Say(mut bytes) => {
                if arrived.line().starts_with("HEAD ") {
                    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| end + 4);
                    bytes.truncate(end);
                }
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reaction::SayAndClose(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reaction::Silence => return wait_for_end(stream).await,
            Reaction::SayAndStall(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return wait_for_end(stream).await;
            }
        }
    }
}

async fn wait_for_end(mut stream: TcpStream) {
    let mut piece = [0; 4096];
    while stream.read(&mut piece).await.is_ok_and(|len| len > 0) {}
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>, connection: usize) -> Option<Arrived> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        fill(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer.drain(..end + 4).collect()).unwrap();
    let mut arrived = Arrived { head: head.trim_end().to_owned(), coded: Vec::new(), body: Vec::new(), connection };
    if arrived.header("transfer-encoding") == Some("chunked") {
        loop {
            let end = loop {
                if let Some(at) = buffer.windows(2).position(|window| window == b"\r\n") {
                    break at;
                }
                fill(stream, buffer).await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&buffer[..end]).unwrap(), 16).unwrap();
            while buffer.len() < end + 2 + size + 2 {
                fill(stream, buffer).await?;
            }
            arrived.body.extend_from_slice(&buffer[end + 2..end + 2 + size]);
            arrived.coded.extend(buffer.drain(..end + 2 + size + 2));
            if size == 0 {
                return Some(arrived);
            }
        }
    }
    let length: usize = arrived.header("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < length {
        fill(stream, buffer).await?;
    }
    arrived.body = buffer.drain(..length).collect();
    arrived.coded = arrived.body.clone();
    Some(arrived)
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 16 * 1024];
    let len = stream.read(&mut piece).await.ok().filter(|len| *len > 0)?;
    buffer.extend_from_slice(&piece[..len]);
    Some(())
}
