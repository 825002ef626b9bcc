//! The public door: what each of its threads does with the connections that it is dealt.

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
use ensemble_chassis::process::{Handlers, Inbox, OpenDoor, PublicDoor, open_doorway};
use prometheus::IntGauge;
use tokio::net::TcpStream;

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

/// Opens the door.
///
/// # Errors
/// The listener cannot be used.
pub fn open(edge: &Arc<EdgeProxy>, door: PublicDoor) -> io::Result<OpenDoor> {
    raise_file_limit();
    let admitting = Arc::clone(edge);
    let admit = move |io, peer: SocketAddr| {
        let permit = admitting.admission().admit(peer.ip())?;
        Some(Arrival { io, peer, permit })
    };
    open_doorway(door.listener, ("edge", door.workers), admit, || {
        let thread =
            Thread { edge: Arc::clone(edge), in_flight: door.in_flight.clone(), handlers: door.handlers.clone() };
        move |inbox| thread.serve(inbox)
    })
}

/// A connection on its way to a thread.
struct Arrival {
    io: std::net::TcpStream,
    peer: SocketAddr,
    permit: Permit,
}

struct Thread {
    edge: Arc<EdgeProxy>,
    in_flight: InFlight,
    handlers: Handlers,
}

impl Thread {
    async fn serve(self, inbox: Inbox<Arrival>) {
        let Some(front) = self.front().await else {
            tracing::error!("The pages of the edge could not be made");
            return;
        };
        let limits = self.edge.guard_limits();
        let sweeping = sweep(front.pools.clone());
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
        let serving = inbox.serve(|Arrival { io, peer, permit }| {
            let io = TcpStream::from_std(io).ok()?;
            sockets::prepare(&io);
            let guard = Guard::new(io, Connection::new(peer.ip()), limits, Some(permit));
            let gauge = self.edge.metrics().connections.clone();
            Some(serve_one(http.call((guard, Some(peer))), gauge))
        });
        tokio::select! {
            () = serving => {}
            () = sweeping => {}
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

/// Looks through the idle connections to services, for ever.
async fn sweep(pools: PerUpstream<Rc<Pool>>) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        sweep.tick().await;
        pools.iter().for_each(|pool| pool.sweep());
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
