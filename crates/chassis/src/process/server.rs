//! The public door as services open it.

use std::io;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use actix_http::HttpService;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use tokio::net::TcpStream;

use super::door::{OpenDoor, PublicDoor};
use super::doorway::{Inbox, open_doorway};
use crate::http::observe;

/// Longer than the idle time of the edge's connections to services, so that these never close one that it is about to use.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

type Configure = dyn Fn(&mut web::ServiceConfig) + Send + Sync;

pub(super) fn open(door: PublicDoor) -> io::Result<OpenDoor> {
    let handlers = door.handlers;
    open_doorway(
        door.listener,
        ("http", door.workers),
        |connection, _| Some(connection),
        || {
            let configure = handlers.configure();
            move |inbox| serve(configure, inbox)
        },
    )
}

/// What one thread does.
async fn serve(configure: Arc<Configure>, inbox: Inbox<StdStream>) {
    let app = App::new().configure(|app| configure(app)).wrap(from_fn(observe::observe));
    let http = HttpService::build()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        // Who closes, goes: nothing that came in by a connection goes on for nobody, least of all a runner's wait for work.
        // (A client that closes only its sending side looks the same, and is taken for one that has gone.)
        .h1_allow_half_closed(false)
        .h1(map_config(app.into_factory(), |()| AppConfig::default()))
        .tcp();
    let Ok(http) = http.new_service(()).await else {
        tracing::error!("The handlers could not be made");
        return;
    };
    inbox
        .serve(|connection| {
            let connection = TcpStream::from_std(connection).ok()?;
            // Small answers leave at once.
            let _ = connection.set_nodelay(true);
            let served = http.call(connection);
            Some(async move {
                if let Err(error) = served.await {
                    tracing::debug!(%error, "A connection ended early");
                }
            })
        })
        .await;
}
