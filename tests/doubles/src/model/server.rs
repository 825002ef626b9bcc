//! The HTTP server on its own port, and the record of its requests.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};

use crate::model::apis::{self, Api};
use crate::model::directive;

/// One request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub api: Api,
    pub model: String,
    /// The user's messages in this conversation, newest last.
    pub user_messages: Vec<String>,
    /// The results of tools since the last directive, newest last.
    pub tool_results: Vec<String>,
}

impl ModelRequest {
    /// The next texts of the user in the conversation.
    pub(crate) fn user_said(&mut self, texts: Vec<String>) {
        if texts.iter().any(|text| directive::is_in(text)) {
            self.tool_results.clear();
        }
        self.user_messages.extend(texts);
    }
}

#[derive(Clone, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Vec<ModelRequest>>>);

impl RequestLog {
    pub(crate) fn record(&self, request: ModelRequest) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    fn all(&self) -> Vec<ModelRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running stand-in. It stops when it is dropped.
pub struct StandIn {
    address: SocketAddr,
    log: RequestLog,
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
        let log = RequestLog::default();
        let app_log = log.clone();
        let app = move || {
            App::new()
                .app_data(web::Data::new(app_log.clone()))
                .app_data(web::PayloadConfig::new(64 << 20))
                .configure(apis::routes)
        };
        let server = HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(0).listen(listener)?.run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self { address, log, handle })
    }

    /// `http://127.0.0.1:<port>`, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.log.all()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Calling `stop` already sends the order. Its future only waits for the end.
        drop(self.handle.stop(false));
    }
}
