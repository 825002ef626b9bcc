//! The public door, and how a service opens it in a way of its own.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use actix_http::body::BoxBody;
use actix_http::{Request, Response};
use actix_service::IntoServiceFactory;
use actix_web::dev::{AppConfig, ServerHandle, Service, ServiceFactory};
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use futures_util::future::{BoxFuture, LocalBoxFuture};

use super::server;
use crate::http::{InFlight, observe};

/// A bound public door with everything behind it, not open yet.
pub struct PublicDoor {
    pub listener: TcpListener,
    /// Threads that should serve requests.
    pub workers: usize,
    /// What draining waits for.
    pub in_flight: InFlight,
    pub handlers: Handlers,
}

/// The handlers of the route table, with all that surrounds them.
#[derive(Clone)]
pub struct Handlers(Arc<dyn Fn(&mut web::ServiceConfig) + Send + Sync>);

/// The handlers, made for one thread, to be called with a request that somebody else has read from a socket.
pub type ThreadHandlers = Rc<dyn Fn(Request) -> LocalBoxFuture<'static, Response<BoxBody>>>;

/// A door that is open.
pub struct OpenDoor {
    pub handle: Box<dyn DoorHandle>,
    /// Completes when it is closed and nobody is inside any more.
    pub ended: BoxFuture<'static, io::Result<()>>,
}

/// Closes an open door.
pub trait DoorHandle: fmt::Debug + Send + Sync {
    /// Accepts nothing more. With `gently`, connections are left to end by themselves; else they are cut. Completes when
    /// there are none.
    fn close(&self, gently: bool) -> BoxFuture<'static, ()>;
}

impl DoorHandle for ServerHandle {
    fn close(&self, gently: bool) -> BoxFuture<'static, ()> {
        Box::pin(self.stop(gently))
    }
}

impl PublicDoor {
    /// Opens it as every service does that has no reason to do it in another way.
    pub fn open(self) -> io::Result<OpenDoor> {
        server::open(self)
    }
}

impl Handlers {
    pub(super) fn new(configure: impl Fn(&mut web::ServiceConfig) + Send + Sync + 'static) -> Self {
        Self(Arc::new(configure))
    }

    /// What puts them into an app.
    pub(super) fn configure(&self) -> Arc<dyn Fn(&mut web::ServiceConfig) + Send + Sync> {
        Arc::clone(&self.0)
    }

    /// Makes them for this thread, which must have an actix runtime. `None` when their state cannot be made.
    pub fn on_this_thread(&self) -> impl Future<Output = Option<ThreadHandlers>> + use<> {
        let configure = Arc::clone(&self.0);
        async move {
            let app = App::new().configure(|app| configure(app)).wrap(from_fn(observe::observe));
            let app = Rc::new(app.into_factory().new_service(AppConfig::default()).await.ok()?);
            let handlers: ThreadHandlers = Rc::new(move |request| {
                let answer = app.call(request);
                Box::pin(async move {
                    match answer.await {
                        Ok(response) => Response::from(response).map_into_boxed_body(),
                        Err(error) => Response::from(error.error_response()).map_into_boxed_body(),
                    }
                })
            });
            Some(handlers)
        }
    }
}
