//! The public door as services open it: one thread accepts connections and deals them out to those that serve.
//!
//! actix's own server is not used because of how it ends: it throws away connections that it has accepted and not begun,
//! and closes kept ones while requests are on their way in them. This one takes all that has knocked, closes the door, and
//! leaves the connections alone until nothing is in flight any more.

use std::fmt;
use std::io;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix_http::HttpService;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::door::{DoorHandle, OpenDoor, PublicDoor};
use crate::http::observe;

/// Longer than the idle time of the edge's connections to services, so that these never close one that it is about to use.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
const DISCONNECT_PATIENCE: Duration = Duration::from_secs(1);

type Configure = dyn Fn(&mut web::ServiceConfig) + Send + Sync;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nobody new comes in.
    Closed,
    /// Everybody out.
    Cut,
}

struct Handle {
    stage: watch::Sender<Stage>,
    ended: Shared<BoxFuture<'static, ()>>,
}

pub(super) fn open(door: PublicDoor) -> io::Result<OpenDoor> {
    door.listener.set_nonblocking(true)?;
    let (stage, stages) = watch::channel(Stage::Open);
    let (mut inboxes, mut ends) = (Vec::new(), Vec::new());
    for number in 0..door.workers {
        let (sender, inbox) = mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel::<()>();
        let (configure, stages) = (door.handlers.configure(), stages.clone());
        thread::Builder::new().name(format!("http-{number}")).spawn(move || {
            let _ended = ended;
            match actix_web::rt::Runtime::new() {
                Ok(runtime) => runtime.block_on(serve(&configure, inbox, stages)),
                Err(error) => tracing::error!(%error, "A thread for requests could not start"),
            }
        })?;
        inboxes.push(sender);
        ends.push(end);
    }
    let listener = door.listener;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("accept".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, &inboxes, stages).await,
                Err(error) => tracing::error!(%error, "The public door cannot be opened"),
            }
        });
    })?;
    let ended = join_all(ends).map(drop).boxed().shared();
    let handle = Handle { stage, ended: ended.clone() };
    Ok(OpenDoor { handle: Box::new(handle), ended: Box::pin(ended.map(Ok)) })
}

/// Ends when the door is closed and all that had knocked by then are in.
async fn accept(
    listener: TcpListener,
    inboxes: &[mpsc::UnboundedSender<StdStream>],
    mut stages: watch::Receiver<Stage>,
) {
    let mut turns = inboxes.iter().cycle();
    let mut take = |connection: TcpStream| {
        if let (Ok(connection), Some(inbox)) = (connection.into_std(), turns.next()) {
            // A thread that has ended takes nothing; then the process is about to end.
            let _ = inbox.send(connection);
        }
    };
    loop {
        tokio::select! {
            biased;
            () = reached(&mut stages, Stage::Closed) => break,
            knocked = listener.accept() => match knocked {
                Ok((connection, _)) => take(connection),
                Err(error) => {
                    // Out of files, most likely: waiting lets some be closed.
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    while let Some(Ok((connection, _))) = listener.accept().now_or_never() {
        take(connection);
    }
}

/// What one thread does.
async fn serve(
    configure: &Arc<Configure>,
    mut inbox: mpsc::UnboundedReceiver<StdStream>,
    mut stages: watch::Receiver<Stage>,
) {
    let app = App::new().configure(|app| configure(app)).wrap(from_fn(observe::observe));
    let http = HttpService::build()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_PATIENCE)
        .client_disconnect_timeout(DISCONNECT_PATIENCE)
        // Who closes, goes: nothing that came in by a connection goes on for nobody, least of all a runner's wait for work.
        // (A client that closes only its sending side looks the same, and is taken for one that has gone.)
        .h1_allow_half_closed(false)
        .h1(map_config(app.into_factory(), |()| AppConfig::default()))
        .tcp();
    let Ok(http) = http.new_service(()).await else {
        tracing::error!("The handlers could not be made");
        return;
    };
    let mut connections = JoinSet::new();
    let mut is_open = true;
    while is_open || !connections.is_empty() {
        tokio::select! {
            arrived = inbox.recv(), if is_open => match arrived {
                Some(connection) => {
                    let Ok(connection) = TcpStream::from_std(connection) else { continue };
                    // Small answers leave at once.
                    let _ = connection.set_nodelay(true);
                    let served = http.call(connection);
                    connections.spawn_local(async move {
                        if let Err(error) = served.await {
                            tracing::debug!(%error, "A connection ended early");
                        }
                    });
                }
                None => is_open = false,
            },
            Some(_) = connections.join_next() => {}
            () = reached(&mut stages, Stage::Cut) => return,
        }
    }
}

/// Completes at `stage` or after it, and when nobody is left who could close the door.
async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    let _ = stages.wait_for(|now| *now >= stage).await;
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
