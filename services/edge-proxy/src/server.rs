//! The public door: accepts connections, hands them to the threads, and closes in order.
//!
//! One task accepts and deals connections out in turn, so that the threads carry the same load. It stops by taking all
//! that has knocked already and only then closing, so that nobody who got in is turned away afterwards.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{Service, ServiceFactory, fn_service};
use ensemble_chassis::http::InFlight;
use ensemble_chassis::process::{DoorHandle, Handlers, OpenDoor, PublicDoor};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use prometheus::IntGauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::domain::route_table::PerUpstream;
use crate::forward::front::Front;
use crate::forward::request_ids::RequestIds;
use crate::guard::admission::Permit;
use crate::guard::connection::Connection;
use crate::guard::stream::Guard;
use crate::upstream::pool::Pool;
use crate::{EdgeProxy, sockets};

/// How often idle connections to services are looked through.
const SWEEP: Duration = Duration::from_secs(5);

/// Opens the door. Must be called within the main runtime.
///
/// # Errors
/// The listener cannot be used.
pub fn open(edge: &Arc<EdgeProxy>, door: PublicDoor) -> io::Result<OpenDoor> {
    raise_file_limit();
    door.listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(door.listener)?;
    let (stage, stages) = watch::channel(Stage::Open);
    let mut threads = Vec::new();
    let mut ends = Vec::new();
    for number in 0..door.workers {
        let (sender, inbox) = mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel();
        let thread = Thread {
            edge: Arc::clone(edge),
            in_flight: door.in_flight.clone(),
            handlers: door.handlers.clone(),
            inbox,
            stages: stages.clone(),
        };
        std::thread::Builder::new().name(format!("edge-{number}")).spawn(move || {
            thread.run();
            let _ = ended.send(());
        })?;
        threads.push(sender);
        ends.push(end);
    }
    let all_ended = join_all(ends).map(drop).boxed().shared();
    tokio::spawn(accept(Arc::clone(edge), listener, threads, stages));
    let handle = Handle { stage, ended: all_ended.clone() };
    Ok(OpenDoor { handle: Box::new(handle), ended: Box::pin(all_ended.map(Ok)) })
}

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
    ended: futures_util::future::Shared<BoxFuture<'static, ()>>,
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

/// A connection on its way to a thread.
struct Arrival {
    io: std::net::TcpStream,
    peer: SocketAddr,
    permit: Permit,
}

async fn accept(
    edge: Arc<EdgeProxy>,
    listener: TcpListener,
    threads: Vec<mpsc::UnboundedSender<Arrival>>,
    mut stages: watch::Receiver<Stage>,
) {
    let mut turn = threads.iter().cycle();
    let mut take = |io: TcpStream, peer: SocketAddr| {
        let (Some(permit), Ok(io), Some(thread)) = (edge.admission().admit(peer.ip()), io.into_std(), turn.next())
        else {
            return;
        };
        // A thread that has ended takes nothing; neither does the door, then.
        let _ = thread.send(Arrival { io, peer, permit });
    };
    loop {
        tokio::select! {
            biased;
            () = reached(&mut stages, Stage::Closed) => break,
            arrived = listener.accept() => match arrived {
                Ok((io, peer)) => take(io, peer),
                Err(error) => {
                    // Out of files, most likely: waiting lets some be closed.
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    while let Some(Ok((io, peer))) = listener.accept().now_or_never() {
        take(io, peer);
    }
}

/// Completes at `stage` or after it, and when nobody is left who could close the door.
async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    let _ = stages.wait_for(|now| *now >= stage).await;
}

struct Thread {
    edge: Arc<EdgeProxy>,
    in_flight: InFlight,
    handlers: Handlers,
    inbox: mpsc::UnboundedReceiver<Arrival>,
    stages: watch::Receiver<Stage>,
}

impl Thread {
    fn run(self) {
        match actix_web::rt::Runtime::new() {
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => tracing::error!(%error, "A thread of the edge could not start"),
        }
    }

    async fn serve(mut self) {
        let Some(front) = self.front().await else {
            tracing::error!("The pages of the edge could not be made");
            return;
        };
        let limits = self.edge.guard_limits();
        let pools = front.pools.clone();
        let http = HttpService::build()
            .keep_alive(KeepAlive::Os)
            // The guard has the deadlines.
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(Duration::ZERO)
            .h1_write_buffer_size(16 * 1024)
            .on_connect_ext(|io: &Guard<TcpStream>, data| {
                data.insert(Rc::clone(io.connection()));
            })
            .h1(fn_service(move |request| {
                let front = Rc::clone(&front);
                async move { Ok::<_, actix_http::Error>(front.answer(request).await) }
            }));
        let Ok(http) = http.new_service(()).await else { return };
        let mut connections = JoinSet::new();
        let mut sweep = tokio::time::interval(SWEEP);
        let mut is_open = true;
        while is_open || !connections.is_empty() {
            tokio::select! {
                arrival = self.inbox.recv(), if is_open => match arrival {
                    Some(Arrival { io, peer, permit }) => {
                        let Ok(io) = TcpStream::from_std(io) else { continue };
                        sockets::prepare(&io);
                        let guard = Guard::new(io, Connection::new(peer.ip()), limits, Some(permit));
                        let gauge = self.edge.metrics().connections.clone();
                        connections.spawn_local(serve_one(http.call((guard, Some(peer))), gauge));
                    }
                    None => is_open = false,
                },
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => pools.iter().for_each(|pool| pool.sweep()),
                () = reached(&mut self.stages, Stage::Cut) => return,
            }
        }
    }

    async fn front(&self) -> Option<Rc<Front>> {
        let pages = self.handlers.on_this_thread().await?;
        let pools = PerUpstream::new(|upstream| Pool::new(self.edge.addresses(upstream), self.edge.pool_limits()));
        Some(Rc::new(Front {
            edge: Arc::clone(&self.edge),
            in_flight: self.in_flight.clone(),
            pools,
            pages,
            request_ids: RequestIds::new(),
        }))
    }
}

async fn serve_one(connection: impl Future<Output = Result<(), DispatchError>>, open: IntGauge) {
    open.inc();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "A client's connection ended early");
    }
    open.dec();
}

/// Each stream is two files, so the limit that a shell sets is soon reached; programs may raise it up to the hard one.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "The limit of open files stays as it is");
    }
}
