//! What every public door has: a thread that accepts connections and deals them out in turn, and those that serve them.
//!
//! actix's own server is not used because of how it ends: it throws away connections that it has accepted and not begun,
//! and closes kept ones while requests are on their way in them. This one takes all that has knocked, closes the door, and
//! leaves the connections alone until nothing is in flight any more.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::door::{DoorHandle, OpenDoor};

/// Connections that may wait to be accepted; the kernel lowers it to what it allows (listen(2)). The standard library's 128
/// are fewer than a burst of streams that come back after a restart, and one that finds no place waits a second to knock
/// again.
const BACKLOG: i32 = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nobody new comes in.
    Closed,
    /// Everybody out.
    Cut,
}

/// The end of a thread at which its connections arrive.
#[derive(Debug)]
pub struct Inbox<A> {
    arrivals: mpsc::UnboundedReceiver<A>,
    stages: watch::Receiver<Stage>,
}

/// Opens a door with threads behind it: `admit` says what of a connection a thread gets, `None` to turn it away; `serve`
/// gives what one thread does with its inbox, on a runtime of its own.
///
/// # Errors
/// The listener cannot be used, or no thread can be had.
pub fn open_doorway<A, S, F>(
    listener: StdListener,
    threads: (&str, usize),
    admit: impl FnMut(StdStream, SocketAddr) -> Option<A> + Send + 'static,
    mut serve: impl FnMut() -> S,
) -> io::Result<OpenDoor>
where
    A: Send + 'static,
    S: FnOnce(Inbox<A>) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    listener.set_nonblocking(true)?;
    SockRef::from(&listener).listen(BACKLOG)?;
    let (stage, stages) = watch::channel(Stage::Open);
    let (mut inboxes, mut ends) = (Vec::new(), Vec::new());
    let (name, number) = threads;
    for number in 0..number {
        let (sender, arrivals) = mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel::<()>();
        let (inbox, serve) = (Inbox { arrivals, stages: stages.clone() }, serve());
        thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
            let _ended = ended;
            match actix_web::rt::Runtime::new() {
                Ok(runtime) => runtime.block_on(serve(inbox)),
                Err(error) => tracing::error!(%error, "A thread for requests could not start"),
            }
        })?;
        inboxes.push(sender);
        ends.push(end);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("accept".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, inboxes, admit, stages).await,
                Err(error) => tracing::error!(%error, "The public door cannot be opened"),
            }
        });
    })?;
    let ended = join_all(ends).map(drop).boxed().shared();
    let handle = Handle { stage, ended: ended.clone() };
    Ok(OpenDoor { handle: Box::new(handle), ended: Box::pin(ended.map(Ok)) })
}

/// Ends when the door is closed and all that had knocked by then are in.
async fn accept<A>(
    listener: TcpListener,
    inboxes: Vec<mpsc::UnboundedSender<A>>,
    mut admit: impl FnMut(StdStream, SocketAddr) -> Option<A>,
    mut stages: watch::Receiver<Stage>,
) {
    let mut turns = inboxes.iter().cycle();
    let mut take = |connection: TcpStream, peer: SocketAddr| {
        let admitted = connection.into_std().ok().and_then(|connection| admit(connection, peer));
        if let (Some(arrival), Some(inbox)) = (admitted, turns.next()) {
            // A thread that has ended takes nothing; then the process is about to end.
            let _ = inbox.send(arrival);
        }
    };
    loop {
        tokio::select! {
            biased;
            () = reached(&mut stages, Stage::Closed) => break,
            knocked = listener.accept() => match knocked {
                Ok((connection, peer)) => take(connection, peer),
                Err(error) => {
                    // Out of files, most likely: waiting lets some be closed.
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    while let Some(Ok((connection, peer))) = listener.accept().now_or_never() {
        take(connection, peer);
    }
}

impl<A> Inbox<A> {
    /// Serves connections side by side: until the door is closed and the last has ended, or everybody has to leave.
    /// `begin` gives what there is to do for one, if anything.
    pub async fn serve<F>(mut self, mut begin: impl FnMut(A) -> Option<F>)
    where
        F: Future<Output = ()> + 'static,
    {
        let mut connections = JoinSet::new();
        let mut is_open = true;
        while is_open || !connections.is_empty() {
            tokio::select! {
                arrived = self.arrivals.recv(), if is_open => match arrived {
                    Some(arrival) => {
                        if let Some(served) = begin(arrival) {
                            connections.spawn_local(served);
                        }
                    }
                    None => is_open = false,
                },
                Some(_) = connections.join_next() => {}
                () = reached(&mut self.stages, Stage::Cut) => return,
            }
        }
    }
}

/// Completes at `stage` or after it, and when nobody is left who could close the door.
async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    let _ = stages.wait_for(|now| *now >= stage).await;
}

struct Handle {
    stage: watch::Sender<Stage>,
    ended: Shared<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl DoorHandle for Handle {
    fn close(&self, gently: bool) -> BoxFuture<'static, ()> {
        let target = if gently { Stage::Closed } else { Stage::Cut };
        self.stage.send_modify(|stage| *stage = (*stage).max(target));
        Box::pin(self.ended.clone())
    }
}
