//! The server itself: a port of its own, and a memory of what it was asked.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};

use crate::apis::{self, Api};

/// One request to a model.
#[derive(Clone, Debug)]
pub struct Heard {
    pub api: Api,
    pub model: String,
    /// All that the user said in this conversation, newest last.
    pub said: Vec<String>,
    /// What the tools gave back, newest last.
    pub tool_results: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<Heard>>>);

impl Memory {
    pub(crate) fn keep(&self, heard: Heard) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
    }

    fn all(&self) -> Vec<Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running stand-in. It stops when it is dropped.
pub struct StandIn {
    address: SocketAddr,
    memory: Memory,
    handle: ServerHandle,
}

impl StandIn {
    /// Starts on a free port of the loopback interface. Needs a tokio runtime.
    pub fn start() -> std::io::Result<Self> {
        Self::listen(TcpListener::bind(("127.0.0.1", 0))?)
    }

    /// Starts on a listener that was bound elsewhere.
    pub fn listen(listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let memory = Memory::default();
        let kept = memory.clone();
        let app = move || {
            App::new()
                .app_data(web::Data::new(kept.clone()))
                .app_data(web::PayloadConfig::new(64 << 20))
                .configure(apis::routes)
        };
        let server = HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(0).listen(listener)?.run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self { address, memory, handle })
    }

    /// `http://127.0.0.1:<port>`, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, oldest first.
    pub fn heard(&self) -> Vec<Heard> {
        self.memory.all()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // The order to stop is given when `stop` is called, not when its future is awaited.
        drop(self.handle.stop(false));
    }
}
