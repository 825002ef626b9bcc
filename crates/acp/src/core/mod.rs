//! What this agent says to the editor, decided from what comes in. There is no I/O here: the process carries out orders, and reports
//! their results.

mod blocks;
mod markdown;
mod out;
mod session;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use ensemble_agent::{Line, McpServer};
use ensemble_types::ids::SessionId;
use serde_json::{Value, json};

use super::rpc::{self, Error, INVALID, Message, NO_METHOD, NOT_FOUND, PARAMS};
use blocks::text;
use out::{Editor, Out};
pub(super) use out::{Order, Wanted};
use session::{Chosen, How, Session};
pub(super) use session::{Event, Opening};

/// The protocol that is spoken here.
const PROTOCOL: u32 = 1;
/// Sessions that the editor may have open.
const MOST_SESSIONS: usize = 32;
/// Requests that wait for the server.
const MOST_WAITING: usize = 64;

/// The only way to sign in.
const LOGIN: &str = "login";
/// Only editors of later versions of the protocol send these.
const LATER: [&str; 4] = ["session/list", "session/resume", "session/close", "session/set_config_option"];

/// The conversation with one editor.
pub(super) struct Core {
    out: Out,
    is_initialized: bool,
    /// Requests that the process is at, by the ticket that it has.
    tickets: BTreeMap<u64, Ticket>,
    next_ticket: u64,
    sessions: BTreeMap<SessionId, Session>,
}

/// A request of the editor that the process is at.
#[derive(Clone, Debug)]
struct Ticket {
    request: Value,
    /// How a session is to be opened; nothing for other requests.
    how: Option<How>,
}

impl Core {
    /// `ids` makes the `localId` of each command.
    pub(super) fn new(now: Instant, ids: Box<dyn FnMut() -> String>) -> Self {
        Self {
            out: Out::new(now, ids),
            is_initialized: false,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            sessions: BTreeMap::new(),
        }
    }

    /// What is to be done now.
    pub(super) fn take(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.out.orders)
    }

    /// When `tick` is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(Session::deadline).min()
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.out.now = now;
        for session in self.sessions.values_mut() {
            session.tick(&mut self.out);
        }
    }

    /// A line of the editor.
    pub(super) fn line(&mut self, line: &Line, now: Instant) {
        self.out.now = now;
        let line = match line {
            Line::Piece(_) => return,
            Line::Text(line) if line.trim().is_empty() => return,
            Line::Text(line) => line,
            Line::Overlong(bytes) => {
                let text = format!("The line has {bytes} bytes; at most {} are read.", ensemble_agent::LONGEST);
                return self.out.answer(&Value::Null, Err(Error::new(INVALID, text)));
            }
        };
        match rpc::read(line) {
            Ok(Message::Request { id, method, params }) => self.request(id, &method, &params),
            Ok(Message::Note { method, params }) => self.note(&method, &params),
            Ok(Message::Answer { id, result }) => self.answer(&id, result),
            Err((id, error)) => self.out.answer(&id, Err(error)),
        }
    }

    fn request(&mut self, id: Value, method: &str, params: &Value) {
        if method == "initialize" {
            return self.initialize(&id, params);
        }
        if !self.is_initialized {
            return self.out.answer(&id, Err(Error::new(INVALID, "The first request is `initialize`.")));
        }
        if LATER.contains(&method) {
            self.out.editor.is_later = true;
        }
        match method {
            "authenticate" if text(params, "/methodId") != LOGIN => {
                let text =
                    format!("There is no way to sign in called {:?}. It has `{LOGIN}`.", text(params, "/methodId"));
                self.out.answer(&id, Err(Error::new(PARAMS, text)));
            }
            "authenticate" => {
                if let Some(ticket) = self.ticket(id, None) {
                    self.out.orders.push(Order::SignedIn { ticket });
                }
            }
            "session/new" => self.new_session(id, params),
            "session/load" => self.open(id, params, How::Load),
            "session/resume" => self.open(id, params, How::Resume),
            "session/list" => {
                if let Some(ticket) = self.ticket(id, None) {
                    let part = |name| Some(text(params, name).to_owned()).filter(|part| !part.is_empty());
                    self.out.orders.push(Order::List { ticket, directory: part("/cwd"), cursor: part("/cursor") });
                }
            }
            "session/prompt" => {
                if let Some((session, out)) = self.session(&id, params) {
                    match blocks::prompt(params.get("prompt").unwrap_or(&Value::Null)) {
                        Ok(prompt) => session.prompt(id, prompt, out),
                        Err(error) => out.answer(&id, Err(error)),
                    }
                }
            }
            "session/set_mode" => self.choose(id, params, Chosen::Mode(text(params, "/modeId").to_owned()), false),
            // Of a draft that some editors speak; the stable protocol has a configuration option.
            "session/set_model" => self.choose(id, params, Chosen::Model(text(params, "/modelId").to_owned()), false),
            "session/set_config_option" => {
                let value = text(params, "/value").to_owned();
                match text(params, "/configId") {
                    "mode" => self.choose(id, params, Chosen::Mode(value), true),
                    "model" => self.choose(id, params, Chosen::Model(value), true),
                    _ => self
                        .out
                        .answer(&id, Err(Error::new(PARAMS, "There is no such option: it has `mode` and `model`."))),
                }
            }
            "session/close" => {
                if let Some((session, out)) = self.session(&id, params) {
                    let (session, waits) = (session.id, session.close(Some(id), out));
                    if !waits {
                        self.leave(session);
                    }
                }
            }
            _ => {
                let text = format!("This agent has no method {method:?}.");
                self.out.answer(&id, Err(Error::new(NO_METHOD, text)));
            }
        }
    }

    fn initialize(&mut self, id: &Value, params: &Value) {
        if self.is_initialized {
            return self.out.answer(id, Err(Error::new(INVALID, "`initialize` was answered already.")));
        }
        // What an editor speaks beyond this version it says itself; the answer names the version that is spoken.
        if params.get("protocolVersion").and_then(Value::as_u64).is_none_or(|version| version > u64::from(u16::MAX)) {
            return self.out.answer(id, Err(Error::new(PARAMS, "`protocolVersion` is a number from 0 to 65535.")));
        }
        let can = |pointer: &str| params.pointer(pointer).is_some_and(Value::is_object);
        let newer = [
            "/clientInfo",
            "/clientCapabilities/session",
            "/clientCapabilities/auth",
            "/clientCapabilities/elicitation",
        ];
        self.out.editor = Editor {
            forms: can("/clientCapabilities/elicitation/form"),
            notices: can("/clientCapabilities/session/notices"),
            is_later: newer.into_iter().any(can),
        };
        self.is_initialized = true;
        let in_terminal = params.pointer("/clientCapabilities/auth/terminal").and_then(Value::as_bool) == Some(true);
        let mut login = json!({
            "id": LOGIN, "name": "Sign in to Ensemble",
            "description": "Run `ensemble login` in a terminal, once on each computer.",
        });
        if let Some(fields) = login.as_object_mut().filter(|_| in_terminal) {
            fields.insert("type".to_owned(), json!("terminal"));
            fields.insert("args".to_owned(), json!(["--login"]));
        }
        let result = json!({
            "protocolVersion": PROTOCOL,
            "agentInfo": {"name": "ensemble", "title": "Ensemble", "version": env!("CARGO_PKG_VERSION")},
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": true, "sse": true},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [login],
        });
        self.out.answer(id, Ok(result));
    }

    fn note(&mut self, method: &str, params: &Value) {
        match method {
            "session/cancel" => {
                let id = text(params, "/sessionId").parse().ok();
                match id.and_then(|id: SessionId| self.sessions.get_mut(&id)) {
                    Some(session) => session.cancel(&mut self.out),
                    None => self.out.log("The editor cancelled a session that is not open."),
                }
            }
            "$/cancel_request" => {
                self.out.editor.is_later = true;
                let request = params.get("requestId").unwrap_or(&Value::Null);
                if let Some(session) = self.sessions.values_mut().find(|session| session.is_prompt(request)) {
                    session.cancel(&mut self.out);
                }
            }
            // A notification is never answered.
            _ => self.out.log(format!("The editor sent a notification that is not known here: {method:?}.")),
        }
    }

    fn answer(&mut self, id: &Value, result: Result<Value, Value>) {
        let Some(called) = self.out.called(id) else {
            return self.out.log("The editor answered a request that is not open.");
        };
        if let Some(session) = self.sessions.get_mut(&called.session) {
            session.answered(called, result, &mut self.out);
        }
    }

    fn ticket(&mut self, request: Value, how: Option<How>) -> Option<u64> {
        if self.tickets.len() >= MOST_WAITING {
            self.out.answer(&request, Err(Error::new(INVALID, "Too many requests wait for the server.")));
            return None;
        }
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, Ticket { request, how });
        Some(self.next_ticket)
    }

    fn new_session(&mut self, id: Value, params: &Value) {
        let directory = Path::new(text(params, "/cwd"));
        if !directory.is_absolute() {
            return self.out.answer(&id, Err(Error::new(PARAMS, "`cwd` is an absolute path.")));
        }
        self.begin(id, How::New, params, Wanted::New(directory.to_owned()));
    }

    fn open(&mut self, id: Value, params: &Value, how: How) {
        let Some(named) = self.named(&id, params) else { return };
        // The updates name the session as the editor does.
        match named.parse().ok().filter(|known: &SessionId| known.to_string() == named) {
            Some(known) => self.begin(id, how, params, Wanted::This(known)),
            None => {
                let text = format!("There is no session {named:?}: the id of one is a UUID in lower case.");
                self.out.answer(&id, Err(Error::new(NOT_FOUND, text)));
            }
        }
    }

    fn begin(&mut self, id: Value, how: How, params: &Value, wanted: Wanted) {
        let servers = match McpServer::read_all(params.get("mcpServers")) {
            Ok(servers) => servers,
            Err(why) => return self.out.answer(&id, Err(Error::new(PARAMS, why))),
        };
        let opening = self.tickets.values().filter(|ticket| ticket.how.is_some()).count();
        if self.sessions.len() + opening >= MOST_SESSIONS {
            let text = format!("{MOST_SESSIONS} sessions are open. Close one first.");
            return self.out.answer(&id, Err(Error::new(INVALID, text)));
        }
        if let Some(ticket) = self.ticket(id, Some(how)) {
            self.out.orders.push(Order::Open { ticket, wanted, servers });
        }
    }

    /// The session that a request names, or an error for the editor.
    fn session(&mut self, id: &Value, params: &Value) -> Option<(&mut Session, &mut Out)> {
        let named = self.named(id, params)?;
        let Self { sessions, out, .. } = self;
        let known = named.parse().ok().and_then(|named: SessionId| sessions.get_mut(&named));
        match known.filter(|session| session.is_open()) {
            Some(session) => Some((session, out)),
            None => {
                let text = format!("The session {named:?} is not open here. `session/load` opens one.");
                out.answer(id, Err(Error::new(NOT_FOUND, text)));
                None
            }
        }
    }

    /// The `sessionId` of a request, or an error for the editor.
    fn named<'p>(&mut self, id: &Value, params: &'p Value) -> Option<&'p str> {
        let named = params.get("sessionId").and_then(Value::as_str);
        if named.is_none() {
            self.out.answer(id, Err(Error::new(PARAMS, "`sessionId` is the id of a session.")));
        }
        named
    }

    fn choose(&mut self, id: Value, params: &Value, chosen: Chosen, wants_options: bool) {
        if let Some((session, out)) = self.session(&id, params) {
            session.choose(id, chosen, wants_options, out);
        }
    }

    /// A session was opened, or was not. Its messages follow, then [`Event::CaughtUp`].
    pub(super) fn opened(&mut self, ticket: u64, opened: Result<Opening, Error>, now: Instant) {
        self.out.now = now;
        let Some(Ticket { request, how: Some(how) }) = self.tickets.remove(&ticket) else { return };
        match opened {
            Ok(opening) => {
                let id = opening.id;
                let mut session = Session::new(opening, how, request);
                // The one that was open is shown no longer. The process has left it.
                if let Some(mut before) = self.sessions.remove(&id) {
                    before.replaced(&mut self.out);
                    session.cancels(before);
                    self.out.forget(id);
                }
                self.sessions.insert(id, session);
            }
            Err(error) => self.out.answer(&request, Err(error)),
        }
    }

    /// The result of another order with a ticket.
    pub(super) fn answered(&mut self, ticket: u64, result: Result<Value, Error>) {
        if let Some(ticket) = self.tickets.remove(&ticket) {
            self.out.answer(&ticket.request, result);
        }
    }

    pub(super) fn event(&mut self, session: SessionId, event: Event, now: Instant) {
        self.out.now = now;
        let Some(open) = self.sessions.get_mut(&session) else { return };
        if !open.event(event, &mut self.out) {
            self.leave(session);
        }
    }

    /// The server has a command.
    pub(super) fn stored(&mut self, session: SessionId, local_id: &str, now: Instant) {
        self.sent(session, local_id, Ok(()), now);
    }

    /// A command was not sent.
    pub(super) fn failed(&mut self, session: SessionId, local_id: &str, why: &str, now: Instant) {
        self.sent(session, local_id, Err(why), now);
    }

    fn sent(&mut self, id: SessionId, local_id: &str, result: Result<(), &str>, now: Instant) {
        self.out.now = now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !session.sent(local_id, result, &mut self.out) {
            self.leave(id);
        }
    }

    /// Whether a prompt that the editor has cancelled is still to be interrupted, once its machine says that it has it.
    pub(super) fn owes_interrupt(&self) -> bool {
        self.sessions.values().any(Session::owes_interrupt)
    }

    fn leave(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.out.forget(session);
        self.out.orders.push(Order::Leave(session));
    }
}
