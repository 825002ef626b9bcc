//! What the core wants done, and what it needs for it: the time, ids, and what the editor can show.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use ensemble_agent::McpServer;
use ensemble_protocol::transcript::body::Content;
use ensemble_types::ids::SessionId;
use serde_json::{Value, json};

use crate::rpc::{self, Error};

/// Requests to the editor that are remembered. Of those that are closed the oldest are forgotten first.
const MOST_CALLS: usize = 256;

/// Something that the process does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Write a message to the editor.
    Write(Value),
    /// Open a session, and answer with `Core::opened`.
    Open {
        ticket: u64,
        wanted: Wanted,
        /// What the editor has for the agent.
        servers: Vec<McpServer>,
    },
    /// List the sessions, and answer with `Core::answered`.
    List {
        ticket: u64,
        directory: Option<String>,
        cursor: Option<String>,
    },
    /// Say whether the account is signed in, by `Core::answered`.
    SignedIn {
        ticket: u64,
    },
    /// Sign and send a command. `Core::stored` says that the server has it, `Core::failed` that it was not sent.
    Send {
        session: SessionId,
        local_id: String,
        content: Box<Content>,
    },
    /// The machine does not answer: start its host, if it is this computer and its host has died.
    Wake(SessionId),
    /// Follow the session no longer.
    Leave(SessionId),
    Log(String),
}

/// The session to open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// The one that the command line names, or a new one for this directory of the editor.
    New(PathBuf),
    /// One that exists.
    This(SessionId),
}

/// What the editor can show beyond what every editor can.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Editor {
    pub(super) forms: bool,
    pub(super) notices: bool,
    /// It knows what was added to the protocol later: updates of titles, options and usage, and that a request can be cancelled.
    pub(super) is_later: bool,
}

/// A request to the editor.
#[derive(Clone, Debug)]
pub(super) struct Called {
    pub(super) session: SessionId,
    /// What the agent asks.
    pub(super) request_id: String,
    pub(super) digest: String,
    /// Why it is no longer asked.
    pub(super) closed: Option<String>,
}

pub(super) struct Out {
    pub(super) orders: Vec<Order>,
    pub(super) now: Instant,
    pub(super) editor: Editor,
    ids: Box<dyn FnMut() -> String>,
    calls: BTreeMap<u64, Called>,
    next_call: u64,
}

impl Out {
    pub(super) fn new(now: Instant, ids: Box<dyn FnMut() -> String>) -> Self {
        Self { orders: Vec::new(), now, editor: Editor::default(), ids, calls: BTreeMap::new(), next_call: 0 }
    }

    pub(super) fn answer(&mut self, id: &Value, result: Result<Value, Error>) {
        self.orders.push(Order::Write(rpc::answer(id, result)));
    }

    pub(super) fn log(&mut self, text: impl Into<String>) {
        self.orders.push(Order::Log(text.into()));
    }

    pub(super) fn update(&mut self, session: SessionId, update: &Value) {
        let params = json!({"sessionId": session, "update": update});
        self.orders.push(Order::Write(rpc::note("session/update", &params)));
    }

    /// An update that an old editor would take for an error.
    pub(super) fn later_update(&mut self, session: SessionId, update: &Value) {
        if self.editor.is_later {
            self.update(session, update);
        }
    }

    /// Signs and sends a command. Returns its `localId`.
    pub(super) fn send(&mut self, session: SessionId, content: Content) -> String {
        let local_id = (self.ids)();
        self.orders.push(Order::Send { session, local_id: local_id.clone(), content: Box::new(content) });
        local_id
    }

    /// Asks the editor. Returns the id of the request.
    pub(super) fn call(&mut self, called: Called, method: &str, params: &Value) -> u64 {
        if self.calls.len() >= MOST_CALLS {
            let oldest = self.calls.iter().find(|(_, called)| called.closed.is_some()).or(self.calls.iter().next());
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.calls.remove(&id);
            }
        }
        self.next_call += 1;
        self.calls.insert(self.next_call, called);
        self.orders.push(Order::Write(rpc::request(self.next_call, method, params)));
        self.next_call
    }

    /// The editor need not answer any more. An answer that is on its way gets `why` in return.
    pub(super) fn withdraw(&mut self, call: u64, why: &str) {
        if let Some(called) = self.calls.get_mut(&call) {
            called.closed = Some(why.to_owned());
            if self.editor.is_later {
                self.orders.push(Order::Write(rpc::note("$/cancel_request", &json!({"requestId": call}))));
            }
        }
    }

    /// What the editor has answered.
    pub(super) fn called(&mut self, id: &Value) -> Option<Called> {
        self.calls.remove(&id.as_u64()?)
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.calls.retain(|_, called| called.session != session);
    }
}
